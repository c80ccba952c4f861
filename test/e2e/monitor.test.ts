import assert from "node:assert/strict";
import { test } from "node:test";
import type { Runtime } from "../../src/core/runtime.port.ts";
import { shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

test("G13: the internal listener says whether the controller gets on, and counts without a name", async (t) => {
  const stack = await testStack(t, "a-tenant-of-note");
  const foundation = await stack.foundation("controller");
  const runtime = stack.runtime();
  let silent = false;
  /** The same world, which at times can't be asked. */
  const observe: Runtime["observe"] = (ref, signal) =>
    silent
      ? Promise.resolve({ state: "unproven", reason: "a host of-note is silent" })
      : runtime.observe(ref, signal);
  const sometimesSilent = new Proxy(runtime, {
    get(target, name): unknown {
      if (name === "observe") return observe;
      const member: unknown = Reflect.get(target, name, target);
      return typeof member === "function" ? (member.bind(target) as unknown) : member;
    },
  });
  const running = await stack.controller(foundation, { runtime: sometimesSilent });
  const get = async (path: string) => {
    const answer = await fetch(`http://127.0.0.1:${running.callbackPort}${path}`);
    return { status: answer.status, text: await answer.text() };
  };
  const valueOf = (text: string, metric: string) => {
    const line = text.split("\n").find((one) => one.startsWith(`${metric} `));
    return line === undefined ? null : Number(line.slice(metric.length + 1));
  };

  assert.deepEqual(await get("/healthz"), { status: 200, text: '{"status":"alive"}' });
  const ready = await until("it is ready", async () => {
    const answer = await get("/readyz");
    return answer.status === 200 ? answer.text : null;
  });
  assert.deepEqual(
    (JSON.parse(ready) as { loops: { name: string; progressing: boolean }[] }).loops.map(
      ({ name, progressing }) => [name, progressing],
    ),
    [
      ["lookout", true],
      ["leases", true],
      ["claims", true],
    ],
  );
  // What is for sandboxes stays closed to whoever asks without a token.
  assert.equal((await get("/callback/v1/progress")).status, 404);

  const job = await stack.submit(foundation, shellJob("a-job-of-note", [{ run: "sleep 1000" }]));
  const busy = await until("the attempt is counted", async () => {
    const { text } = await get("/metrics");
    return valueOf(text, 'holdfast_attempts{state="active"}') === 1 ? text : null;
  });
  assert.equal(valueOf(busy, "holdfast_database_up"), 1);
  assert.equal(valueOf(busy, 'holdfast_slots{pool="default"}'), 2);
  assert.equal(valueOf(busy, 'holdfast_slots_used{pool="default"}'), 1);
  assert.equal(valueOf(busy, "holdfast_sandboxes_stop_unproven"), 0);
  assert.equal(valueOf(busy, "holdfast_attempts_attended"), 1);
  assert.equal(valueOf(busy, 'holdfast_leases_held{kind="execution"}'), 1);
  for (const word of ["of-note", job, "sleep"]) assert.ok(!busy.includes(word), word);

  // E8: what can't be proven stopped is counted over all tenants.
  silent = true;
  await until("it is counted as unproven", async () => {
    return valueOf((await get("/metrics")).text, "holdfast_sandboxes_stop_unproven") === 1;
  });
});

test("M2: a controller that the store's schema has left behind is not ready, and is alive", async (t) => {
  const stack = await testStack(t, "acme", { invariants: false });
  const running = await stack.controller(await stack.foundation("controller"));
  const status = async (path: string) =>
    (await fetch(`http://127.0.0.1:${running.callbackPort}${path}`)).status;
  await until("it is ready", async () => (await status("/readyz")) === 200);
  // It counts as ended, such as one that was away for long: else the floor could not rise.
  await stack.rows("update holdfast.incarnations set ended_at = now()");
  await stack.rows("update holdfast.store set writer_floor = 9000, reader_floor = 9000");
  assert.notEqual(await status("/readyz"), 200);
  assert.equal(await status("/healthz"), 200);
});
