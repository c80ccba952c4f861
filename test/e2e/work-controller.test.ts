import assert from "node:assert/strict";
import { test } from "node:test";
import { parseConfig } from "../../src/config.ts";
import { isHoldfastError } from "../../src/core/errors.ts";
import { testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

const read = (environment: Readonly<Record<string, string>>) => {
  const { workRetention: finished, workObservationRetention: observations } = parseConfig(environment);
  return { finished, observations: observations ?? new Map() };
};

test("G13: how long work is kept is configured, a policy of late results by its name, and what is wrong is named", () => {
  assert.deepEqual(read({}), { finished: null, observations: new Map() });
  assert.deepEqual(
    read({ HOLDFAST_WORK_RETENTION: "90d", HOLDFAST_WORK_OBSERVATION_RETENTION: "late=30d, an-audit=365d" }),
    {
      finished: 7_776_000_000_000n,
      observations: new Map([
        ["late", 2_592_000_000_000n],
        ["an-audit", 31_536_000_000_000n],
      ]),
    },
  );
  for (const [name, text] of [
    ["HOLDFAST_WORK_RETENTION", "1h"],
    ["HOLDFAST_WORK_OBSERVATION_RETENTION", "late"],
    ["HOLDFAST_WORK_OBSERVATION_RETENTION", "late=1h"],
    ["HOLDFAST_WORK_OBSERVATION_RETENTION", "late=2d,late=3d"],
  ] as const) {
    assert.throws(
      () => read({ [name]: text }),
      (error) => isHoldfastError(error, "invalid_configuration") && error.detail.startsWith(name),
      `${name}=${text}`,
    );
  }
});

test("W6 W12: a controller removes finished work in its time, and tells how Work stands without a name", async (t) => {
  const stack = await testStack(t, "a-tenant-of-note");
  const ages = ["1 day 1 hour", "3 days", "9 days"];
  await stack.rows(
    `insert into holdfast.work_items (tenant_id, work_id, version_number, fingerprint_schema, fingerprint, input, queue, priority,
       accepted_at, due_at, attempts_max, retry_initial_microseconds, retry_longest_microseconds, elapsed_max_microseconds, lease_max_microseconds)
     select 'a-tenant-of-note', gen_random_uuid(), 1, 1, sha256('x'), '"of-note"', 'mail', 2, now() - age::interval, now() - age::interval,
       3, 0, 0, 1000000000, 1000000 from unnest($1::text[]) as age`,
    [ages],
  );
  await stack.rows(
    `insert into holdfast.work_history (tenant_id, work_id, state, attempts, finished_at, failure_code, failure_message)
     select tenant_id, work_id, 'failed', 0, accepted_at, 'elapsed_exhausted', 'of-note' from holdfast.work_items`,
  );
  const left = async () =>
    (await stack.rows<{ n: number }>("select count(*)::int as n from holdfast.work_items"))[0]?.n;
  assert.equal(await left(), 3);
  const foundation = await stack.foundation("controller");
  const running = await stack.controller(foundation, { work: read({ HOLDFAST_WORK_RETENTION: "2d" }) });
  await until("two have had their time", async () => (await left()) === 1);
  const text = await until("it is told", async () => {
    const answer = await fetch(`http://127.0.0.1:${running.callbackPort}/metrics`);
    const body = await answer.text();
    return body.includes("holdfast_work_items") ? body : null;
  });
  assert.match(text, /^holdfast_work_items\{state="pending"\} 0$/m);
  assert.match(text, /^holdfast_work_oldest_due_seconds 0$/m);
  assert.ok(!text.includes("of-note"));
});
