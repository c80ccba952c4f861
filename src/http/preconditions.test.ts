import assert from "node:assert/strict";
import { test } from "node:test";
import { isHoldfastError } from "../core/errors.ts";
import { checkVersion, etagOf, parseIfMatch, requireIfMatch } from "./preconditions.ts";

test("G4: entity tags are compared strongly", () => {
  assert.deepEqual(parseIfMatch('"1", W/"2" ,"x","03", "4"'), [1n, 4n]);
  assert.equal(parseIfMatch(" * "), "any");
  assert.equal(parseIfMatch(undefined), null);
  assert.deepEqual(parseIfMatch(etagOf(7n)), [7n]);
});

test("what is no list of entity tags is refused", () => {
  for (const header of ["", "1", '"1', '"1" "2"', "*, *", 'w/"1"', '"1",', '"a b"']) {
    assert.throws(
      () => parseIfMatch(header),
      (error) => isHoldfastError(error, "invalid_request"),
      header,
    );
  }
});

test("G4: another version is refused; a change that needs one is refused without", () => {
  checkVersion([1n, 2n], 2n);
  checkVersion("any", 2n);
  checkVersion(null, 2n);
  assert.throws(
    () => checkVersion([1n], 2n),
    (error) => isHoldfastError(error, "precondition_failed"),
  );
  assert.throws(
    () => requireIfMatch(null),
    (error) => isHoldfastError(error, "precondition_required"),
  );
});
