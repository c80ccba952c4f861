import assert from "node:assert/strict";
import { test } from "node:test";
import * as fc from "fast-check";
import { Compile } from "typebox/compile";
import { closeName } from "./close-name.ts";
import { readDuration, writeDuration } from "./duration.ts";
import { isHoldfastError } from "./holdfast-error.ts";
import { JobSubmission } from "./job.ts";
import { schemaProblems } from "./schema-problems.ts";
import { checkSubmission } from "./submission.ts";

const valid = {
  apiVersion: "holdfast/v1",
  kind: "Job",
  metadata: { name: "site", labels: { team: "web" }, priority: 1 },
  spec: {
    attempts: 2,
    sources: { engine: { repository: "./engine", ref: "main" } },
    phases: [
      { name: "fetch", kind: "source", command: ["git"], env: { A: "b" } },
      { name: "build", kind: "compile", command: ["make"], limits: { cpu_millicores: 500 } },
    ],
  },
};

test("a valid body comes back as it is", () => {
  assert.equal(checkSubmission(valid), valid);
});

test("an invalid body is refused with a pointer to each field, and no line", () => {
  const body = { ...valid, metadata: { name: "Site" }, spec: { phases: [] } };
  assert.throws(
    () => checkSubmission(body),
    (error) => {
      assert.ok(isHoldfastError(error, "invalid_request"));
      assert.deepEqual(error.fields, [
        {
          pointer: "/metadata/name",
          message: 'must be 1 to 63 lower-case letters, digits and inner hyphens, found "Site"',
        },
        { pointer: "/spec/phases", message: "must have at least 1 in its list, found 0" },
      ]);
      return true;
    },
  );
});

test("pointers escape what RFC 6901 escapes", () => {
  const body = { ...valid, metadata: { name: "site", labels: { "a/b~c!": "x" } } };
  assert.deepEqual(
    schemaProblems(JobSubmission, body).map(({ pointer }) => pointer),
    ["/metadata/labels/a~1b~0c!"],
  );
});

test("the messages and the validator never disagree", () => {
  const validator = Compile(JobSubmission);
  const odd = fc.oneof(
    fc.constantFrom<unknown>(
      null,
      true,
      0,
      -1,
      1.5,
      NaN,
      Infinity,
      "",
      "a",
      "compile",
      "holdfast/v1",
      [],
      {},
      [{}],
    ),
    fc.jsonValue({ maxDepth: 2 }),
    fc.string({ unit: "binary" }),
  );
  const spoiled = fc.tuple(
    fc.array(fc.nat(9), { minLength: 1, maxLength: 5 }),
    fc.string({ maxLength: 3 }),
    odd,
  );
  fc.assert(
    fc.property(fc.array(spoiled, { maxLength: 3 }), (edits) => {
      const body: unknown = structuredClone(valid);
      for (const [path, name, value] of edits) spoil(body, path, name, value);
      assert.equal(schemaProblems(JobSubmission, body).length === 0, validator.Check(body));
    }),
    { numRuns: 500 },
  );
});

/** Walk down by position, then replace a member, or add one under a new name. */
function spoil(root: unknown, path: readonly number[], name: string, value: unknown): void {
  let at = root;
  for (const [depth, index] of path.entries()) {
    if (typeof at !== "object" || at === null) return;
    const keys = Object.keys(at);
    const key = index < keys.length ? keys[index] : name;
    const next: unknown = key === undefined ? undefined : Reflect.get(at, key);
    if (key !== undefined && (depth === path.length - 1 || typeof next !== "object")) {
      Object.defineProperty(at, key, { value, enumerable: true, configurable: true, writable: true });
      return;
    }
    at = next;
  }
}

test("a close name is found across swaps, case and separators, and nothing far away is", () => {
  assert.equal(closeName("comand", ["name", "command"]), "command");
  assert.equal(closeName("nmae", ["name", "command"]), "name");
  assert.equal(closeName("cpuMillicores", ["cpu_millicores"]), "cpu_millicores");
  assert.equal(closeName("colour", ["name", "command", "kind"]), undefined);
});

test("durations are read without loss and written the same way", () => {
  assert.equal(readDuration("1h30m"), 5_400_000_000n);
  assert.equal(readDuration("1s1us"), 1_000_001n);
  for (const wrong of ["", "1", "1d", "1m1h", "-1s", "1.5s", " 1s"])
    assert.equal(readDuration(wrong), undefined);
  fc.assert(fc.property(fc.bigInt(0n, 10n ** 15n), (value) => readDuration(writeDuration(value)) === value));
});
