import assert from "node:assert/strict";
import { test } from "node:test";
import { runInNewContext } from "node:vm";
import { isHoldfastError } from "../core/errors.ts";
import { kept, valueBytesMax } from "./value.ts";

function refusalOf(value: unknown): string {
  try {
    kept(value, ["input"]);
  } catch (error) {
    assert.ok(isHoldfastError(error, "invalid_request"), String(error));
    return error.detail;
  }
  return "";
}

class Money {
  readonly #cents = 5;
  cents() {
    return this.#cents;
  }
}
class Point {
  readonly x = 1;
  readonly y = 2;
}
class Reading extends Map<string, number> {}

test("W9: what JSON would change or lose without a word is refused, with its place and what to do", () => {
  const cases: readonly (readonly [value: unknown, says: RegExp])[] = [
    [undefined, /^input is undefined, .*: give null$/],
    [() => 1, /^input is a function/],
    [Symbol("s"), /^input is a symbol/],
    [{ items: [1, 2, 3, { amount: 5n }] }, /^input\.items\[3\]\.amount is a bigint: give it as text$/],
    [{ a: [1, undefined] }, /^input\.a\[1\] is undefined/],
    [{ a: Array.from({ length: 2 }) }, /^input\.a\[0\] is undefined/],
    // oxlint-disable-next-line no-sparse-arrays -- JSON makes null of a hole
    [[1, , 2], /^input\[1\] is undefined/],
    [{ run: () => 1 }, /^input\.run is a function, .*: leave it out$/],
    [{ kind: Symbol("s") }, /^input\.kind is a symbol/],
    [{ "odd name": Number.NaN }, /^input\["odd name"\] is NaN, .*: give null or a text$/],
    [[Number.POSITIVE_INFINITY], /^input\[0\] is Infinity/],
    [{ id: 2 ** 60 }, /^input\.id is beyond 2\^53, .*: give it as text$/],
    [{ prices: new Map([["a", 1]]) }, /^input\.prices is a Map, .*Object\.fromEntries/],
    [new Reading(), /^input is a Map/],
    [{ tags: new Set(["a"]) }, /^input\.tags is a Set, .*: give \[\.\.\.set\]$/],
    [{ bytes: new Uint8Array(2) }, /^input\.bytes is a Uint8Array: .*base64/],
    [{ bytes: Buffer.from("ab") }, /^input\.bytes is a Buffer: .*base64/],
    [new ArrayBuffer(2), /^input is an ArrayBuffer: .*base64/],
    [{ why: new Error("x") }, /^input\.why is an Error, which JSON does not keep/],
    [/x/, /^input is a RegExp/],
    [Promise.resolve(1), /^input is a Promise/],
    [Object(1), /^input is a Number/],
    [new URLSearchParams("a=1"), /^input is a URLSearchParams/],
    [{ price: new Money() }, /^input\.price is of a class and has no members/],
    [{ at: new Date(Number.NaN) }, /^input\.at is a Date that is no time: give null$/],
    [{ at: { toJSON: () => [1n] } }, /^input\.at\[0\] is a bigint/],
    [{ at: { toJSON: () => undefined } }, /^input\.at is undefined/],
    [{ at: { toJSON: () => new Date(0) } }, /^input\.at has a toJSON that gives something which has one/],
    ["a\0b", /^input has the character NUL/],
    [{ a: "\ud800" }, /^input\.a has half of a surrogate pair/],
    [{ a: { "x\0": 1 } }, /^input\.a has a name that has the character NUL/],
    [{ "\udfff": 1 }, /^input has a name that has half of a surrogate pair/],
  ];
  for (const [value, says] of cases) assert.match(refusalOf(value), says);
});

test("W9: what leads back to itself, is nested without an end or throws when it is read is refused, not followed", () => {
  const ring: { next: { back?: unknown }[] } = { next: [{}] };
  (ring.next[0] ?? {}).back = ring;
  assert.match(refusalOf({ ring }), /^input\.ring\.next\[0\]\.back leads back to input\.ring: give it once$/);
  let deep: unknown = 1;
  for (let level = 0; level < 100_000; level += 1) deep = [deep];
  assert.match(refusalOf(deep), /^input is nested deeper than 1000 levels$/);
  const trap = {
    get price(): number {
      throw new Error("s3cret");
    },
  };
  const said = refusalOf({ trap });
  assert.match(said, /^input can't be read/);
  assert.ok(!said.includes("s3cret"));
});

test("W9: what is too large is refused before it is sent, however it came to be", () => {
  const tooLarge = /^input is larger than the 256 KiB that are kept: /;
  assert.equal(refusalOf("x".repeat(valueBytesMax - 64)), "");
  assert.match(refusalOf({ text: "x".repeat(5_000_000) }), tooLarge);
  assert.match(refusalOf(Array.from({ length: 100_000 }, () => true)), tooLarge);
  // Each level names the one below twice: JSON would write all of it out.
  let twice: unknown = { x: 1 };
  for (let level = 0; level < 60; level += 1) twice = { a: twice, b: twice };
  assert.match(refusalOf(twice), tooLarge);
});

test("W9: what JSON carries is kept: plain values, own members of a class, what toJSON gives, and no undefined property", () => {
  const same = {
    text: "a",
    none: null,
    yes: true,
    numbers: [0, -1.5, 5e-324, Number.MAX_SAFE_INTEGER],
    point: new Point(),
    bare: Object.assign(Object.create(null) as object, { x: 1 }),
    other: runInNewContext("({ a: [{}], b: {} })") as unknown,
    shared: [["a"], ["a"]],
    left: undefined,
  };
  assert.equal(kept(same, ["input"]), same, "nothing is copied that needn't be");
  const at = new Date(0);
  assert.deepEqual(kept({ at, url: new URL("http://h/"), left: undefined }, ["input"]), {
    at: "1970-01-01T00:00:00.000Z",
    url: "http://h/",
  });
});

test("the place of what is wrong is a JSON pointer, too", () => {
  try {
    kept({ "a/b": [{ "c~d": 1n }] }, ["items", 2, "input"]);
    assert.fail("it is refused");
  } catch (error) {
    assert.ok(isHoldfastError(error, "invalid_request"));
    assert.equal(error.detail, 'items[2].input["a/b"][0]["c~d"] is a bigint: give it as text');
    assert.deepEqual(
      error.fields.map(({ pointer }) => pointer),
      ["/items/2/input/a~1b/0/c~0d"],
    );
  }
});
