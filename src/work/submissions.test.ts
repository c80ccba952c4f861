import assert from "node:assert/strict";
import { test } from "node:test";
import { HoldfastError } from "../core/errors.ts";
import { instant } from "../core/time.ts";
import { type SubmitCall, shareSubmissions } from "./submissions.ts";
import { batchMax } from "./submit.ts";

/** Statements end when the test says so; an item that is called "bad" has its statement refused. */
function statements() {
  const sent: SubmitCall[] = [];
  const ends: (() => void)[] = [];
  let waiting = () => {};
  const submit = shareSubmissions(async (call) => {
    sent.push(call);
    waiting();
    await new Promise<void>((resolve) => ends.push(resolve));
    if (call.items.includes("gone")) throw new HoldfastError("unavailable", "the answer was lost");
    if (call.items.includes("bad")) throw new HoldfastError("idempotency_conflict", "bad");
    return call.items.map((item) => ({ id: String(item), duplicate: false, acceptedAt: instant(0n) }));
  });
  return {
    sent,
    submit: async (items: readonly unknown[], name = "note") => {
      const submitted = await submit({ tenant: "acme", deploymentEpoch: 1n, name, version: "1", items });
      return submitted.map(({ id }) => id);
    },
    /** Lets the statement under way end, once there is one. */
    end: async () => {
      if (ends.length === 0) await new Promise<void>((resolve) => (waiting = resolve));
      await Promise.resolve();
      ends.shift()?.();
    },
  };
}

test("W9: callers of one moment share a statement, those that come meanwhile the next, and each has its own answer", async () => {
  const { sent, submit, end } = statements();
  const first = Promise.all([submit(["a"]), submit(["b", "c"])]);
  await end();
  const later = [submit(["d"]), submit(["e"])];
  assert.deepEqual(await first, [["a"], ["b", "c"]]);
  await end();
  assert.deepEqual(await Promise.all(later), [["d"], ["e"]]);
  assert.deepEqual(
    sent.map(({ items }) => items),
    [
      ["a", "b", "c"],
      ["d", "e"],
    ],
  );
});

test("W9: who is refused is refused alone: the others of its statement are sent again without it", async () => {
  const { submit, end } = statements();
  const asked = ["a", "b", "bad", "d"].map((item) => submit([item]));
  const settled = Promise.allSettled(asked);
  for (let n = 0; n < 5; n += 1) await end();
  assert.deepEqual(
    (await settled).map((one) => (one.status === "fulfilled" ? one.value : "refused")),
    [["a"], ["b"], "refused", ["d"]],
  );
});

test("W9: an answer that was lost is lost for all of its statement, and nothing is sent twice", async () => {
  const { sent, submit, end } = statements();
  const settled = Promise.allSettled([submit(["a"]), submit(["gone"])]);
  await end();
  assert.deepEqual(
    (await settled).map(({ status }) => status),
    ["rejected", "rejected"],
  );
  assert.equal(sent.length, 1);
});

test("a statement has no more items than its change may list, and those of other work have their own", async () => {
  const { sent, submit, end } = statements();
  const many = Array.from({ length: batchMax - 1 }, (_, n) => n);
  const all = Promise.all([submit(many), submit(["x", "y"]), submit(["z"], "other")]);
  for (let n = 0; n < 3; n += 1) await end();
  await all;
  assert.deepEqual(
    sent.map(({ name, items }) => [name, items.length]),
    [
      ["note", batchMax - 1],
      ["other", 1],
      ["note", 2],
    ],
  );
});
