import assert from "node:assert/strict";
import { after, test } from "node:test";
import { countLeft, endDrain, startDrain } from "../../src/core/drain.store.ts";
import { isDrainKind } from "../../src/core/drain.ts";
import { isHoldfastError } from "../../src/core/errors.ts";
import { transition } from "../../src/core/postgres/transition.ts";
import { submitJob } from "../../src/executions/job.store.ts";
import { exitCodes } from "../../src/wire/exit-codes.ts";
import type { JobView } from "../../src/wire/job.ts";
import type { SessionView } from "../../src/wire/session.ts";
import { defineWork, legacy, openWork, submit } from "../../src/work/sdk.ts";
import { urlOf } from "../support/database-url.ts";
import { openBench, type Reply, submission } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";
import { runCommand } from "../support/run-command.ts";
import { until } from "../support/until.ts";

const bench = await openBench({ after });
const { a, b, call, kernel } = bench;
const env = { HOLDFAST_DATABASE_URL: urlOf(kernel.database.app) };
const holdfast = (...words: string[]) => runCommand(words, { env });
const reason = "the cluster is upgraded tonight";

/** What is drained now and how much of it is left, as a program reads it. */
async function drained(): Promise<Record<string, number>> {
  const { code, stdout, stderr } = await holdfast("drain", "-o", "json");
  assert.equal(code, 0, stderr);
  const { drains } = JSON.parse(stdout) as { drains: { kind: string; left: number; reason: string }[] };
  for (const { kind } of drains) assert.ok(isDrainKind(kind));
  return Object.fromEntries(drains.map(({ kind, left }) => [kind, left]));
}

async function drain(...kinds: string[]): Promise<void> {
  const { code, stderr } = await holdfast("drain", ...kinds, "--reason", reason);
  assert.equal(code, 0, stderr);
}

function isRefused(reply: Reply, kind: string): void {
  assert.deepEqual([reply.status, reply.problem().code], [503, "draining"], reply.text);
  assert.equal(reply.headers.get("retry-after"), "30");
  assert.equal(reply.problem().detail, `no new ${kind} are admitted: ${reason}`);
}

test("M5: a drain of jobs refuses new ones of every tenant, shows what is left until zero, and resume admits again", async () => {
  const key = "before-the-drain";
  const first = await call(a, "POST", "/v1/jobs", { body: submission(), key });
  const job = first.json<JobView>();
  await drain("jobs");
  for (const caller of [a, b])
    isRefused(await call(caller, "POST", "/v1/jobs", { body: submission() }), "jobs");
  assert.deepEqual(await drained(), { jobs: 1 });
  // What was admitted is answered as ever, also to the same request again, and goes on.
  const again = await call(a, "POST", "/v1/jobs", { body: submission(), key });
  assert.deepEqual([again.status, again.json<JobView>().id], [201, job.id]);
  assert.equal((await call(a, "GET", `/v1/jobs/${job.id}`)).status, 200);
  assert.equal(
    (await call(a, "PATCH", `/v1/jobs/${job.id}`, { body: { priority: 0 }, ifMatch: '"1"' })).status,
    200,
  );
  await call(a, "POST", `/v1/jobs/${job.id}:cancel`);
  const waited = await holdfast("drain", "--wait");
  assert.equal(waited.code, 0);
  assert.match(
    waited.stdout,
    /^DRAINED +LEFT +FOR +BY +REASON\njobs +0 +\d+s +holdfast_app +the cluster is upgraded tonight\n$/,
  );

  const resumed = await holdfast("resume", "jobs", "--reason", "done");
  assert.equal(resumed.stdout, "Everything is admitted.\n");
  assert.equal((await call(a, "POST", "/v1/jobs", { body: submission() })).status, 201);
});

test("M5: a drain of sessions refuses new ones and lets the old go on; one of activations refuses what they are told", async () => {
  const agent = {
    apiVersion: "holdfast/v1",
    kind: "Agent",
    metadata: { name: "notes" },
    spec: { command: ["true"] },
  };
  assert.equal((await call(a, "POST", "/v1/agents", { body: agent })).status, 201);
  const session = (await call(a, "POST", "/v1/sessions", { body: { agent: "notes" } })).json<SessionView>();
  const told = `/v1/sessions/${session.id}/activations`;
  const tell = (id: string, text: string) => call(a, "POST", told, { body: { id, stimulus: { text } } });
  const ids = ["01976b2c-0000-7000-8000-000000000001", "01976b2c-0000-7000-8000-000000000002"] as const;

  await drain("sessions");
  isRefused(await call(a, "POST", "/v1/sessions", { body: { agent: "notes" } }), "sessions");
  assert.equal((await tell(ids[0], "hello")).status, 201);

  await drain("activations");
  isRefused(await tell(ids[1], "more"), "activations");
  // The same one again is no new one (S2).
  assert.ok((await tell(ids[0], "hello")).status < 300);
  const left = await drained();
  assert.ok((left["activations"] ?? 0) > 0, JSON.stringify(left));
  assert.equal((await call(a, "POST", "/v1/jobs", { body: submission() })).status, 201, "the rest goes on");

  const undone = await holdfast("drain", "--undo", "sessions", "activations");
  assert.equal(undone.stdout, "Everything is admitted.\n");
  assert.equal((await tell(ids[1], "more")).status, 201);
});

test("M5: a drain of work refuses new items and resolves those that were accepted", async (t) => {
  const pay = defineWork({
    name: "pay",
    version: "1",
    safety: "idempotent",
    policy: legacy(),
    run: () => null,
  });
  const work = await openWork({ database: kernel.settings, tenant: tenantA });
  t.after(() => work.close());
  await work.register(pay);
  const accepted = await submit(work, pay, null, { key: "invoice-1" });
  await drain("work");
  await assert.rejects(submit(work, pay, null, { key: "invoice-2" }), (error) => {
    assert.ok(isHoldfastError(error, "draining"), String(error));
    assert.equal(error.retryAfterSeconds, 30);
    return true;
  });
  const again = await submit(work, pay, null, { key: "invoice-1" });
  assert.deepEqual([again.id, again.duplicate], [accepted.id, true]);
  assert.deepEqual(await drained(), { work: 1 });
  await holdfast("resume", "all");
  assert.equal((await submit(work, pay, null, { key: "invoice-2" })).duplicate, false);
});

test("M5: a drain waits for whoever began before it, and counts what that still admits", async () => {
  const open = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  const scope = { role: "gateway", tenant: tenantA, name: "slow" } as const;
  const slow = transition(kernel.db, scope, async (tx) => {
    await submitJob(tx, { submission: submission({ name: "slow" }), queueMax: 100 });
    begun.resolve();
    await open.promise;
  });
  await begun.promise;
  const draining = startDrain(kernel.db, ["jobs"], reason);
  let waits = true;
  void draining.then(() => (waits = false));
  let before: number;
  try {
    await until(
      "the drain is on record",
      async () => (await kernel.ask("select from holdfast.drains")).length === 1,
    );
    before = (await countLeft(kernel.db)).jobs;
    assert.ok(waits);
  } finally {
    open.resolve();
    await slow;
  }
  assert.equal(await draining, true);
  assert.equal((await countLeft(kernel.db)).jobs, before + 1);
  await endDrain(kernel.db, ["jobs"], "done");
});

test("M5: a drain keeps its first reason, and leaves who, when and why on record", async () => {
  await kernel.ask("delete from holdfast.operator_actions");
  await drain("jobs");
  await holdfast("drain", "jobs", "--reason", "another");
  await holdfast("resume", "jobs");
  const rows = await kernel.ask(
    "select action, subject, reason, acted_by from holdfast.operator_actions order by action_id",
  );
  assert.deepEqual(rows, [
    { action: "drain", subject: "jobs", reason, acted_by: "holdfast_app" },
    { action: "resume", subject: "jobs", reason: "none given", acted_by: "holdfast_app" },
  ]);
});

test("M5: a kind that there is not, and a drain without a reason, are refused with the words that help", async () => {
  for (const [words, message] of [
    [["drain", "sandboxes", "--reason", "x"], /Allowed choices are jobs, sessions, activations, work, all/],
    [["drain", "jobs"], /--reason says why/],
  ] as const) {
    const { code, stderr } = await holdfast(...words);
    assert.deepEqual([code, message.test(stderr)], [exitCodes.usage, true], stderr);
  }
});
