import assert from "node:assert/strict";
import { test } from "node:test";
import type { Health } from "../../src/client/client.ts";
import { transition } from "../../src/core/postgres/transition.ts";
import { loopProgress, stuckMs } from "../../src/main/progress.ts";
import { append } from "../support/changes.ts";
import { withClient } from "../support/database.ts";
import { testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

test("G13: a gateway is ready while its loops get on with what there is to do, not only while they live", async (t) => {
  const stack = await testStack(t, "acme", { invariants: false });
  const foundation = await stack.foundation("gateway");
  const { gateway } = await stack.gateway(foundation);
  const ready = async () => {
    const reply = await fetch(`${gateway.address}/readyz`);
    return { ok: reply.ok, ...((await reply.json()) as Health) };
  };
  const first = await until("it is ready", async () => {
    const answer = await ready();
    return answer.ok ? answer : null;
  });
  assert.deepEqual(
    first.loops?.map(({ name, progressing }) => [name, progressing]),
    [
      ["lookout", true],
      ["sequencer", true],
      ["reader", true],
    ],
  );
  const overdue = async () => {
    const found = (await ready()).loops?.find(({ name }) => name === "sequencer");
    return Number(/(\d+) ms/.exec(found?.detail ?? "")?.[1] ?? 0);
  };
  // The counter's row is held: changes can't get their positions, though loop and database live.
  await withClient(stack.database.superuser, async (holder) => {
    await holder.query("begin; select from holdfast.change_counter for update");
    await transition(foundation.db, { role: "gateway", tenant: stack.tenant, name: "append" }, (tx) =>
      append(tx, { kind: "test" }),
    );
    await until("the sequencer is seen to be behind", async () => (await overdue()) > 500);
    await holder.query("rollback");
  });
  await until("it has caught up", async () => (await overdue()) < 100);
  assert.equal(loopProgress("sequencer", performance.now() - stuckMs - 1_000).progressing, false);
});

test("M2: a gateway that the store's schema has left behind is not ready, and is alive", async (t) => {
  const stack = await testStack(t, "acme", { invariants: false });
  const { gateway } = await stack.gateway(await stack.foundation("gateway"));
  const status = async (path: string) => (await fetch(`${gateway.address}${path}`)).status;
  await until("it is ready", async () => (await status("/readyz")) === 200);
  // It counts as ended, such as one that was away for long: else the floor could not rise.
  await stack.rows("update holdfast.incarnations set ended_at = now()");
  await stack.rows("update holdfast.store set writer_floor = 9000, reader_floor = 9000");
  assert.equal(await status("/readyz"), 503);
  assert.equal(await status("/healthz"), 200);
});
