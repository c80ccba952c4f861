import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { workStand } from "../../test/support/work.ts";
import { seconds } from "../core/time.ts";
import { defineWork, type Verdict, WorkFailure } from "./define.ts";
import { submit } from "./open.ts";
import { legacy } from "./policy.ts";

const lease = seconds(2);
const policy = legacy({ attempts: 3, initial: seconds(0) });
const broken = () => new Error("the connection broke");

test("W11: what code of a strict class throws leaves its outcome unknown, and a WorkFailure alone says that nothing happened", async (t) => {
  const { worker, work, ask, errors } = await workStand(t);
  const ran: Record<string, number> = {};
  const throwing = (name: string, first: () => Error) => {
    ran[name] = (ran[name] ?? 0) + 1;
    if (ran[name] === 1) throw first();
    return "done";
  };
  const manual = defineWork<string, string>({
    name: "manual",
    version: "1",
    safety: "manual_resolution",
    policy,
    run: (name) =>
      throwing(name, name === "breaks" ? broken : () => new WorkFailure("busy", "", { retry: true })),
  });
  const verdicts: Verdict<string>[] = [{ applied: true, result: "as it says there" }, { applied: false }];
  const asked: string[] = [];
  const reconciled = defineWork<string, string>({
    name: "reconciled",
    version: "1",
    safety: "reconcile_before_retry",
    policy,
    run: (name) => throwing(name, broken),
    reconcile(name) {
      asked.push(name);
      return verdicts[Number(name === "did not")] ?? "unknown";
    },
  });
  const repeated = defineWork<string, string>({
    name: "repeated",
    version: "1",
    safety: "idempotent",
    policy,
    run: (name) => throwing(name, broken),
  });
  const works = [manual, reconciled, repeated];
  await work.register(...works);
  const settled: string[] = [];
  await worker({ works, lease, onSettled: (name, what) => settled.push(`${name} ${what}`) });
  const ids = new Map<string, string>();
  for (const name of ["breaks", "is busy"]) ids.set(name, (await submit(work, manual, name)).id);
  for (const name of ["did", "did not"]) ids.set(name, (await submit(work, reconciled, name)).id);
  ids.set("again", (await submit(work, repeated, "again")).id);
  const history = () =>
    ask<{ work_id: string; state: string; attempts: number; result: unknown }>(
      "select * from holdfast.work_history",
    );
  const suspensions = () =>
    ask<{ work_id: string; reason: string }>("select work_id, reason from holdfast.work_suspensions");
  await until(
    "each came to something",
    async () => (await history()).length === 4 && (await suspensions()).length === 1,
    30_000,
  );
  assert.deepEqual(await suspensions(), [{ work_id: ids.get("breaks"), reason: "outcome_unknown" }]);
  const ended = new Map((await history()).map((row) => [row.work_id, row]));
  const came = (name: string) => {
    const row = ended.get(ids.get(name) ?? "");
    return [row?.state, row?.attempts, row?.result, ran[name]];
  };
  assert.equal(ran.breaks, 1, "nobody has said that it did not happen");
  assert.deepEqual(came("is busy"), ["succeeded", 2, "done", 2]);
  assert.deepEqual(came("did"), ["succeeded", 1, "as it says there", 1]);
  assert.deepEqual(came("did not"), ["succeeded", 2, "done", 2]);
  assert.deepEqual(came("again"), ["succeeded", 2, "done", 2]);
  assert.deepEqual(asked.toSorted(), ["did", "did not"]);
  assert.deepEqual(settled.filter((one) => !one.endsWith(" finished")).toSorted(), [
    "manual retry",
    "manual unknown",
    "reconciled unknown",
    "reconciled unknown",
    "repeated retry",
  ]);
  assert.equal(errors.length, 3);
  for (const text of errors)
    assert.match(
      text,
      /^the result of \w+ [0-9a-f-]{36} is unknown, since only a WorkFailure says that nothing happened: the connection broke$/,
    );
});

test("W11: a handler of a strict class that a stopping worker aborts is unknown, and does not run again by itself", async (t) => {
  const { worker, work, ask } = await workStand(t);
  let ran = 0;
  const call = defineWork<unknown, void>({
    name: "call",
    version: "1",
    safety: "manual_resolution",
    policy,
    run: (_, { signal }) => {
      ran += 1;
      return new Promise((_resolve, reject) =>
        signal.addEventListener("abort", () => reject(broken()), { once: true }),
      );
    },
  });
  await work.register(call);
  await submit(work, call, 1);
  const stopped = await worker({ works: [call], lease, grace: seconds(0.1) });
  await until("it runs", () => ran === 1);
  await stopped.stop();
  await worker({ works: [call], lease });
  const suspended = () => ask<{ reason: string }>("select reason from holdfast.work_suspensions");
  await until("somebody is asked", async () => (await suspended()).length === 1, 30_000);
  assert.deepEqual(await suspended(), [{ reason: "outcome_unknown" }]);
  assert.equal(ran, 1);
});

test("W11: input that does not fit fails before the code runs, also of a strict class; so does a validator that throws", async (t) => {
  const { worker, work, ask } = await workStand(t);
  let fits = true;
  let throws = false;
  const even = defineWork<number, void>({
    name: "even",
    version: "1",
    safety: "manual_resolution",
    policy: legacy({ attempts: 1 }),
    input: {
      "~standard": {
        version: 1,
        vendor: "test",
        validate(value) {
          if (throws) throw broken();
          return fits ? { value: value as number } : { issues: [{ message: "does not fit any more" }] };
        },
      },
    },
    run: () => assert.fail("its input does not fit"),
  });
  await work.register(even);
  const ids = [(await submit(work, even, 1)).id];
  fits = false;
  const first = await worker({ works: [even], lease });
  const failures = () =>
    ask<{ work_id: string; failure_code: string }>("select work_id, failure_code from holdfast.work_history");
  await until("it has failed", async () => (await failures()).length === 1);
  await first.stop();
  fits = true;
  ids.push((await submit(work, even, 2)).id);
  throws = true;
  await worker({ works: [even], lease });
  await until("the other has failed, too", async () => (await failures()).length === 2);
  const codes = new Map((await failures()).map((row) => [row.work_id, row.failure_code]));
  assert.deepEqual(
    ids.map((id) => codes.get(id)),
    ["invalid_request", "handler_failed"],
  );
  assert.deepEqual(await ask("select from holdfast.work_suspensions"), []);
});
