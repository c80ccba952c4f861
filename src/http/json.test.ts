import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { isHoldfastError } from "../core/errors.ts";
import { readJson } from "./json.ts";

const read = (text: string) => readJson(Buffer.from(text), { depth: 32 });
const refusal = (body: string | Uint8Array) => {
  try {
    readJson(typeof body === "string" ? Buffer.from(body) : body, { depth: 32 });
  } catch (error) {
    assert.ok(isHoldfastError(error, "invalid_json"), String(error));
    return error;
  }
  return assert.fail(`accepted ${String(body)}`);
};

test("G11: whatever JSON.stringify writes is read as it was", () => {
  fc.assert(
    fc.property(fc.jsonValue({ noUnicodeString: false }), (value) => {
      const text = JSON.stringify(value);
      const expected: unknown = JSON.parse(text);
      if (!storable(expected)) return;
      assert.deepEqual(read(text), expected);
    }),
  );
});

function storable(value: unknown): boolean {
  if (typeof value === "string") return value.isWellFormed() && !value.includes("\0");
  if (typeof value === "number") return !Number.isInteger(value) || Number.isSafeInteger(value);
  if (typeof value !== "object" || value === null) return true;
  return Object.entries(value).every(([name, member]) => storable(name) && storable(member));
}

test("G11: text that JSON.parse refuses is refused, without another error", () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(...'{}[]",:\\u0 1e-tnf\n'.split("")) }), (text) => {
      let parsed = true;
      try {
        JSON.parse(text);
      } catch {
        parsed = false;
      }
      if (!parsed) refusal(text);
    }),
    { numRuns: 500 },
  );
});

test("G11: invalid UTF-8 is refused, never replaced", () => {
  refusal(Buffer.from([0x22, 0xff, 0x22]));
  refusal(Buffer.from([0x22, 0xc3, 0x22]));
  refusal(Buffer.from([0x22, 0xed, 0xa0, 0x80, 0x22]));
  refusal(Buffer.from([0xef, 0xbb, 0xbf, 0x31]));
});

test("G11: a name that stands twice is refused with its place, also when written differently", () => {
  const error = refusal('{\n  "a": {"b": 1,\n "\\u0062": 2}}');
  assert.equal(error.fields[0]?.pointer, "/a/b");
  assert.deepEqual([error.fields[0]?.line, error.fields[0]?.column], [3, 2]);
});

test("G3: integers beyond 2^53 are refused, not rounded", () => {
  for (const text of ["9007199254740993", "-9007199254740993", "1e20", "1e999"]) refusal(text);
  assert.equal(read("9007199254740991"), Number.MAX_SAFE_INTEGER);
});

test("G11: what PostgreSQL can't store is refused", () => {
  refusal('"\\u0000"');
  refusal('"\\ud800"');
  refusal('{"\\udc00": 1}');
  assert.equal(read('"\\ud83d\\ude00"'), "😀");
});

test("G11: depth is bounded", () => {
  refusal("[".repeat(100_000));
  refusal(`${"[".repeat(33)}${"]".repeat(33)}`);
  read(`${"[".repeat(32)}${"]".repeat(32)}`);
});

test("__proto__ is a name like any other", () => {
  const value = read('{"__proto__": {"admin": true}}') as Record<string, unknown>;
  assert.deepEqual(Object.keys(value), ["__proto__"]);
  assert.equal(Object.getPrototypeOf(value), Object.prototype);
  assert.equal(value["admin"], undefined);
});
