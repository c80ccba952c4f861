import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { workStand } from "../../test/support/work.ts";
import { seconds } from "../core/time.ts";
import { workCounters, workerMetrics } from "./counters.ts";
import { defineWork, WorkFailure } from "./define.ts";
import { submit, submitAll } from "./open.ts";
import { legacy } from "./policy.ts";

test("docs/work.md names everything that a worker counts, with its labels", () => {
  const text = readFileSync(new URL("../../docs/work.md", import.meta.url), "utf8");
  const rows = [...text.matchAll(/^\| `(holdfast_\w+)` \| (.*?) \|/gm)].map(([, name, labels = ""]) => [
    name,
    labels.match(/\w+/g),
  ]);
  assert.deepEqual(rows, Object.entries(workerMetrics));
});

test("W12 W5: a worker counts its attempts, and what it was refused at a permit, a renewal and a completion, and names no tenant, item or payload", async (t) => {
  const { worker, work, ask } = await workStand(t);
  const counters = workCounters();
  const gate = new Map<string, () => void>();
  const pay = defineWork<{ readonly way: string }, null>({
    name: "pay",
    version: "1",
    safety: "manual_resolution",
    policy: legacy({ initial: seconds(3600), longest: seconds(3600) }),
    async run({ way }, { id }) {
      if (way === "fails") throw new WorkFailure("declined", "s3cret");
      if (way === "again") throw new WorkFailure("busy", "s3cret", { retry: true });
      if (way === "late") await new Promise<void>((resolve) => gate.set(id, resolve));
      return null;
    },
  });
  await work.register(pay);
  const counted = (line: string) =>
    Number(
      counters
        .text()
        .split("\n")
        .find((one) => one.startsWith(`${line} `))
        ?.split(" ")
        .at(-1) ?? 0,
    );
  const attempts = (outcome: string) =>
    counted(`holdfast_work_attempts_total{work="pay",outcome="${outcome}"}`);
  await submitAll(
    work,
    pay,
    ["well", "well", "fails", "again"].map((way) => ({ input: { way } })),
  );
  await worker({ works: [pay], lease: seconds(3), onMetric: counters.onMetric });
  await until(
    "all of it has had its attempt",
    () => attempts("finished") === 2 && attempts("failed") === 1 && attempts("retry") === 1,
  );
  // Taken over while it runs: the renewal tells of it, and its late word is refused.
  const { id } = await submit(work, pay, { way: "late" });
  await until("it runs", () => gate.has(id));
  await ask(
    `with lost as (
       update holdfast.leases_work set holder = gen_random_uuid(), epoch = nextval('holdfast.lease_epochs') where resource_id = $1 returning 1)
     select from lost`,
    [id],
  );
  await until(
    "its lease was lost",
    () => counted('holdfast_work_refusals_total{work="",boundary="renewal",reason="lost"}') === 1,
  );
  gate.get(id)?.();
  await until("its word came late", () => attempts("quarantined") === 1);
  assert.equal(attempts("finished"), 2, "each attempt is counted once");
  assert.equal(
    counted('holdfast_work_refusals_total{work="pay",boundary="completion",reason="quarantined"}'),
    1,
  );
  // A tenant that is disabled before its turn gets no permit.
  await ask("update holdfast.tenants set disabled_at = now() where tenant_id = 'acme'");
  await ask(
    "update holdfast.leases_work set due_at = now(), wake_at = now() where work_state = 'retry_wait'",
  );
  work.wake();
  await until(
    "it was refused its permit",
    () => counted('holdfast_work_refusals_total{work="pay",boundary="permit",reason="suspended"}') === 1,
  );
  const text = counters.text();
  for (const word of ["acme", "s3cret", id]) assert.ok(!text.includes(word), word);
});
