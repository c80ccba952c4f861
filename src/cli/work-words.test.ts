import assert from "node:assert/strict";
import { test } from "node:test";
import { stateSentence } from "./work-words.ts";

test("W12: a lease that has run out is told as such, with who takes the item up", () => {
  const until = "2026-11-30T12:00:00.000000Z";
  const lease = { holder: "0190-a", epoch: "7", until, renewable_until: null, admitted_at: null };
  const permitted = {
    state: "permitted",
    suspended: null,
    next_due_at: null,
    lease,
    finished_at: null,
  } as const;
  assert.equal(
    stateSentence(permitted, Date.parse("2026-11-30T11:59:59Z")),
    "permitted: its code runs, or may have been called by 0190-a, whose lease lasts until 2026-11-30 12:00:00Z",
  );
  assert.match(
    stateSentence(permitted, Date.parse("2026-11-30T12:00:00Z")),
    /whose lease ran out at 2026-11-30 12:00:00Z: the next worker of its version and queue that is alive takes it up$/,
  );
});
