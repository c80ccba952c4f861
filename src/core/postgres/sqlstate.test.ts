import assert from "node:assert/strict";
import { test } from "node:test";
import { isHoldfastError } from "../errors.ts";
import { isRetryable, sqlstateOf, translate } from "./sqlstate.ts";

/** As the driver passes on what the server sent. */
const fromServer = (code: string, constraint?: string) =>
  Object.assign(new Error("from the server"), { severity: "ERROR", code, constraint });
const fromSystem = (code: string, message = code) => Object.assign(new Error(message), { code });
const codeOf = (error: unknown) => {
  const translated = translate(error);
  return isHoldfastError(translated) ? translated.code : undefined;
};

test("E6: HF001 is `fenced`, whatever its message says", () => {
  assert.equal(codeOf(fromServer("HF001")), "fenced");
});

test("a named constraint gives its own code, and any other violation is a fault of ours", () => {
  assert.equal(codeOf(fromServer("23505", "commands_key_taken")), "idempotency_conflict");
  const other = fromServer("23505", "some_other_key");
  assert.equal(translate(other), other);
});

test("a connection that broke is `unavailable`, however the driver or the system puts it", () => {
  for (const error of [
    fromSystem("EPIPE", "write EPIPE"),
    fromSystem("ECONNRESET"),
    fromSystem("ERR_STREAM_DESTROYED"),
    new Error("Connection terminated unexpectedly"),
    new Error("Client has encountered a connection error and is not queryable"),
    new Error("Query read timeout"),
    fromServer("57P01"),
    fromServer("08006"),
  ]) {
    assert.equal(codeOf(error), "unavailable", error.message);
    assert.equal(isRetryable(error), false);
  }
  assert.equal(sqlstateOf(fromSystem("EPIPE")), undefined);
});

test("G14: only serialisation failures and deadlocks are run again", () => {
  assert.deepEqual(
    ["40001", "40P01", "40000", "23505", "57014", "HF001"].filter((code) => isRetryable(fromServer(code))),
    ["40001", "40P01"],
  );
});

test("what is no error of the database passes through unchanged", () => {
  const error = new TypeError("a mistake");
  assert.equal(translate(error), error);
  assert.equal(translate("text"), "text");
});
