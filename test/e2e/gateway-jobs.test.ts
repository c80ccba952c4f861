import assert from "node:assert/strict";
import { after, test } from "node:test";
import { brandId, type JobId } from "../../src/core/ids.ts";
import { transition } from "../../src/core/postgres/transition.ts";
import { advanceJob, lockJob } from "../../src/executions/job.store.ts";
import type { JobView } from "../../src/wire/job.ts";
import { openBench, submission } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";

const bench = await openBench({ after });

test("G2: a submitted job is there with its lease, its change and its command", async () => {
  const reply = await bench.call(bench.a, "POST", "/v1/jobs", {
    body: submission({ name: "first", labels: { team: "web" }, priority: 1 }),
    headers: { "x-request-id": "req-1" },
  });
  assert.equal(reply.status, 201, reply.text);
  const job = reply.json<JobView>();
  assert.equal(reply.headers.get("location"), `/v1/jobs/${job.id}`);
  assert.equal(reply.headers.get("etag"), '"1"');
  assert.equal(reply.headers.get("x-request-id"), "req-1");
  assert.deepEqual([job.state, job.name, job.priority, job.labels], ["queued", "first", 1, { team: "web" }]);
  const rows = await bench.kernel.ask(
    `select (select count(*)::int from holdfast.leases where kind = 'admission' and resource_id = $1) as leases,
         (select array_agg(operation) from holdfast.resource_changes where resource_id = $1) as changes,
         (select array_agg(operation || ' ' || request_id) from holdfast.commands) as commands,
         (select enrolled_at is not null from holdfast.jobs where job_id = $1) as enrolled`,
    [job.id],
  );
  assert.deepEqual(rows, [
    { leases: 1, changes: ["job.submitted"], commands: ["jobs.submit req-1"], enrolled: true },
  ]);
  const read = await bench.call(bench.a, "GET", `/v1/jobs/${job.id}`);
  assert.deepEqual(read.json<JobView>(), job);
  const spec = await bench.call(bench.a, "GET", `/v1/jobs/${job.id}/spec`);
  assert.deepEqual(spec.json(), submission().spec);
  const attempts = await bench.call(bench.a, "GET", `/v1/jobs/${job.id}/attempts`);
  assert.deepEqual(attempts.json(), { items: [] });
  const logs = await bench.call(bench.a, "GET", `/v1/jobs/${job.id}/logs`);
  assert.deepEqual([logs.status, logs.text], [200, ""]);
});

test("E2: however many callers compete, the queue of a tenant is bounded, and others' are not touched", async () => {
  const room = await openBench({ after }, { queueMax: 5 });
  const replies = await Promise.all(
    Array.from({ length: 12 }, (_, n) =>
      room.call(room.a, "POST", "/v1/jobs", { body: submission(), key: `bounded-${n}` }),
    ),
  );
  assert.equal(replies.filter(({ status }) => status === 201).length, 5);
  for (const reply of replies.filter(({ status }) => status !== 201)) {
    assert.deepEqual([reply.status, reply.problem().code], [429, "queue_full"]);
    assert.ok(Number(reply.headers.get("retry-after")) > 0);
  }
  assert.equal((await room.call(room.b, "POST", "/v1/jobs", { body: submission() })).status, 201);
  // One leaves, so one more may wait; a refused key was not used up.
  const kept = replies.find(({ status }) => status === 201);
  const refused = replies.findIndex(({ status }) => status === 429);
  await room.call(room.a, "POST", `/v1/jobs/${kept?.json<JobView>().id}:cancel`);
  const retried = await room.call(room.a, "POST", "/v1/jobs", {
    body: submission(),
    key: `bounded-${refused}`,
  });
  assert.equal(retried.status, 201);
});

test("G8: a waiting job is cancelled at once; cancelling again changes nothing", async () => {
  const job = await bench.submit();
  const cancel = () =>
    bench.call(bench.a, "POST", `/v1/jobs/${job.id}:cancel`, { body: { reason: "not needed" } });
  const first = await cancel();
  assert.equal(first.status, 202, first.text);
  const cancelled = first.json<JobView>();
  assert.deepEqual([cancelled.state, cancelled.cancel_reason], ["cancelled", "not needed"]);
  assert.equal(cancelled.finished_at, cancelled.cancel_requested_at);
  assert.deepEqual((await cancel()).json(), cancelled);
  const rows = await bench.kernel.ask(
    `select (select count(*)::int from holdfast.leases where resource_id = $1) as leases,
       (select array_agg(operation order by change_id) from holdfast.resource_changes where resource_id = $1) as changes`,
    [job.id],
  );
  assert.deepEqual(rows, [{ leases: 0, changes: ["job.submitted", "job.cancelled"] }]);
});

test("G8: of a running job the request is persisted once, and its controller does the rest", async () => {
  const job = await bench.submit();
  const cancelled = await transition(
    bench.kernel.db,
    { role: "controller", tenant: tenantA, name: "start" },
    async (tx) => advanceJob(tx, await lockJob(tx, brandId<JobId>(job.id)), "start"),
  );
  assert.equal(cancelled.state, "running");
  const first = (await bench.call(bench.a, "POST", `/v1/jobs/${job.id}:cancel`)).json<JobView>();
  assert.deepEqual([first.state, first.cancel_reason, first.finished_at], ["running", "requested", null]);
  assert.ok(first.cancel_requested_at);
  assert.deepEqual((await bench.call(bench.a, "POST", `/v1/jobs/${job.id}:cancel`)).json(), first);
  const late = await bench.call(bench.a, "PATCH", `/v1/jobs/${job.id}`, {
    body: { priority: 0 },
    ifMatch: "*",
  });
  assert.deepEqual([late.status, late.problem().code], [409, "conflict"]);
  // A success that comes late loses against the cancellation.
  const settle = (event: "succeed" | "cancel") =>
    transition(bench.kernel.db, { role: "controller", tenant: tenantA, name: "settle" }, async (tx) =>
      advanceJob(tx, await lockJob(tx, brandId<JobId>(job.id)), event),
    );
  await assert.rejects(settle("succeed"));
  assert.equal((await settle("cancel")).state, "cancelled");
});

test("G8: a job that has finished is not cancelled", async () => {
  const job = await bench.submit();
  await transition(bench.kernel.db, { role: "controller", tenant: tenantA, name: "run" }, async (tx) => {
    const row = await advanceJob(tx, await lockJob(tx, brandId<JobId>(job.id)), "start");
    await advanceJob(tx, row, "succeed");
  });
  const reply = await bench.call(bench.a, "POST", `/v1/jobs/${job.id}:cancel`);
  assert.deepEqual([reply.status, reply.problem().code], [409, "conflict"]);
});

test("G10: a submission followed at once by a patch converges on the patched intent", async () => {
  const job = await bench.submit(bench.a, { labels: { keep: "1", drop: "1" } });
  const reply = await bench.call(bench.a, "PATCH", `/v1/jobs/${job.id}`, {
    body: { labels: { drop: null, add: "2" }, priority: 0 },
    ifMatch: '"1"',
    headers: { "content-type": "application/merge-patch+json" },
  });
  const patched = reply.json<JobView>();
  assert.deepEqual([patched.labels, patched.priority], [{ keep: "1", add: "2" }, 0]);
  const [lease] = await bench.kernel.ask("select priority from holdfast.leases where resource_id = $1", [
    job.id,
  ]);
  assert.deepEqual(lease, { priority: 0 });
  // The same again changes nothing, and says so by the version.
  const again = await bench.call(bench.a, "PATCH", `/v1/jobs/${job.id}`, {
    body: { priority: 0 },
    ifMatch: '"2"',
  });
  assert.deepEqual(again.json(), patched);
});

test("jobs are listed newest first, by state, labels and name, page after page", async () => {
  const room = await openBench({ after });
  const made: string[] = [];
  for (let n = 0; n < 7; n += 1) {
    const labels = { parity: n % 2 === 0 ? "even" : "odd", n: String(n) };
    made.unshift((await room.submit(room.a, { name: n === 3 ? "third" : "other", labels })).id);
  }
  const list = async (query: string) => {
    const reply = await room.call(room.a, "GET", `/v1/jobs?${query}`);
    assert.equal(reply.status, 200, reply.text);
    return reply.json<{ items: JobView[]; next_page_token: string | null; cursor: string }>();
  };
  const seen: string[] = [];
  let token: string | null = "";
  while (token !== null) {
    const page = await list(`limit=3${token === "" ? "" : `&page_token=${token}`}`);
    seen.push(...page.items.map(({ id }) => id));
    token = page.next_page_token;
    // One that comes meanwhile moves nothing.
    await room.submit(room.a, { name: "late" });
  }
  assert.deepEqual(seen, made);
  assert.equal((await list("label=parity=even&state=queued&name=other")).items.length, 4);
  assert.equal((await list("label=parity=even&label=n=2")).items.length, 1);
  assert.equal((await list("name=third")).items.length, 1);
  assert.equal((await list("state=running&state=failed")).items.length, 0);
  const { next_page_token } = await list("limit=1");
  for (const query of [
    `limit=1&name=other&page_token=${next_page_token}`,
    "page_token=abc",
    "page_token=%00",
  ]) {
    const reply = await room.call(room.a, "GET", `/v1/jobs?${query}`);
    assert.deepEqual([reply.status, reply.problem().code], [400, "invalid_cursor"]);
  }
  for (const query of ["limit=0", "state=lost", "label=x", "unknown=1", "label=a=1&label=a=2"]) {
    assert.equal((await room.call(room.a, "GET", `/v1/jobs?${query}`)).status, 400, query);
  }
});
