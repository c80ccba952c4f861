import assert from "node:assert/strict";
import { after, test } from "node:test";
import type { JobView } from "../../src/wire/job.ts";
import { openBench, submission } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";

const bench = await openBench({ after }, { queueMax: 1000 });
const count = async (text: string, values: readonly unknown[] = []) =>
  (await bench.kernel.ask<{ n: number }>(`select count(*)::int as n from ${text}`, values))[0]?.n;
const post = (key: string | undefined, body: unknown, who = bench.a) =>
  bench.call(who, "POST", "/v1/jobs", { body, ...(key === undefined ? {} : { key }) });

test("G3: an exact replay returns the stored response, also after the job has changed and the server restarted", async () => {
  const first = await post("key-1", submission({ name: "once" }));
  assert.equal(first.status, 201);
  assert.equal(first.headers.get("idempotency-replayed"), null);
  const { id } = first.json<JobView>();
  await bench.call(bench.a, "POST", `/v1/jobs/${id}:cancel`);
  await bench.restart();
  // The same JSON, written otherwise.
  const { metadata, spec } = submission({ name: "once" });
  const again = await post("key-1", { spec, kind: "Job", metadata, apiVersion: "holdfast/v1" });
  assert.equal(again.status, 201);
  assert.equal(again.headers.get("idempotency-replayed"), "true");
  assert.deepEqual(again.json(), first.json());
  assert.equal(again.headers.get("etag"), first.headers.get("etag"));
  assert.equal(again.headers.get("location"), first.headers.get("location"));
  assert.equal(await count("holdfast.jobs where name = 'once'"), 1);
});

test("G3: another operation, target, body or precondition under the same key is a conflict", async () => {
  const job = await bench.submit();
  const other = await bench.submit();
  const path = `/v1/jobs/${job.id}`;
  const patch = { body: { labels: { a: "1" } }, key: "key-2", ifMatch: '"1"' };
  assert.equal((await bench.call(bench.a, "PATCH", path, patch)).status, 200);
  const attempts = [
    bench.call(bench.a, "PATCH", path, { ...patch, body: { labels: { a: "2" } } }),
    bench.call(bench.a, "PATCH", path, { ...patch, ifMatch: '"2"' }),
    bench.call(bench.a, "PATCH", `/v1/jobs/${other.id}`, patch),
    bench.call(bench.a, "POST", `${path}:cancel`, { key: "key-2" }),
    post("key-2", submission()),
  ];
  for (const reply of await Promise.all(attempts)) {
    assert.deepEqual([reply.status, reply.problem().code], [409, "idempotency_conflict"]);
  }
  // The exact one goes before the check of its precondition, which would fail now.
  const replay = await bench.call(bench.a, "PATCH", path, patch);
  assert.deepEqual([replay.status, replay.headers.get("idempotency-replayed")], [200, "true"]);
});

test("G3: keys belong to a principal", async () => {
  const neighbour = await bench.caller(tenantA, ["*"]);
  const ids = new Set<string>();
  for (const who of [bench.a, neighbour, bench.b]) {
    const reply = await post("key-3", submission(), who);
    assert.equal(reply.status, 201);
    ids.add(reply.json<JobView>().id);
  }
  assert.equal(ids.size, 3);
});

test("G3: of concurrent first uses one runs, and the others get its answer", async () => {
  const replies = await Promise.all(
    Array.from({ length: 8 }, () => post("key-4", submission({ name: "concurrent" }))),
  );
  assert.deepEqual(new Set(replies.map(({ status }) => status)), new Set([201]));
  assert.equal(new Set(replies.map((reply) => reply.json<JobView>().id)).size, 1);
  const replayed = replies.filter(({ headers }) => headers.get("idempotency-replayed") === "true");
  assert.equal(replayed.length, 7);
  assert.equal(await count("holdfast.jobs where name = 'concurrent'"), 1);
});

test("G3: only committed outcomes are stored: a key whose request was refused is free", async () => {
  const job = await bench.submit();
  const path = `/v1/jobs/${job.id}`;
  const body = { labels: { a: "1" } };
  const stale = await bench.call(bench.a, "PATCH", path, { body, key: "key-5", ifMatch: '"7"' });
  assert.equal(stale.status, 412);
  const fresh = await bench.call(bench.a, "PATCH", path, { body, key: "key-5", ifMatch: '"1"' });
  assert.deepEqual([fresh.status, fresh.headers.get("idempotency-replayed")], [200, null]);
  const invalid = await bench.call(bench.a, "POST", "/v1/jobs", { body: submission(), key: "with space" });
  assert.deepEqual([invalid.status, invalid.problem().code], [400, "invalid_idempotency_key"]);
  assert.equal(await count("holdfast.commands where response_status is null"), 0);
});

test("a mutation without a key is in the ledger too", async () => {
  const before = await count("holdfast.commands");
  await bench.submit();
  assert.equal(await count("holdfast.commands"), (before ?? 0) + 1);
});

test("G4: a stale If-Match is 412 and changes nothing; a missing one is 428", async () => {
  const job = await bench.submit();
  const path = `/v1/jobs/${job.id}`;
  const body = { labels: { a: "1" }, priority: 0 };
  for (const [ifMatch, status, code] of [
    ['"2"', 412, "precondition_failed"],
    ['W/"1"', 412, "precondition_failed"],
    ['"no-version"', 412, "precondition_failed"],
    [undefined, 428, "precondition_required"],
    ["1", 400, "invalid_request"],
  ] as const) {
    const reply = await bench.call(bench.a, "PATCH", path, {
      body,
      ...(ifMatch === undefined ? {} : { ifMatch }),
    });
    assert.deepEqual([reply.status, reply.problem().code], [status, code], reply.text);
  }
  assert.deepEqual((await bench.call(bench.a, "GET", path)).json(), job);
  assert.equal(await count("holdfast.resource_changes where resource_id = $1", [job.id]), 1);
  const patched = await bench.call(bench.a, "PATCH", path, { body, ifMatch: '"5", "1"' });
  assert.deepEqual([patched.status, patched.headers.get("etag")], [200, '"2"']);
});

test("G4: of concurrent patches of one version exactly one is applied", async () => {
  const job = await bench.submit();
  const replies = await Promise.all(
    Array.from({ length: 6 }, (_, n) =>
      bench.call(bench.a, "PATCH", `/v1/jobs/${job.id}`, {
        body: { labels: { n: String(n) } },
        ifMatch: '"1"',
      }),
    ),
  );
  const statuses = replies.map(({ status }) => status).toSorted((a, b) => a - b);
  assert.deepEqual(statuses, [200, 412, 412, 412, 412, 412]);
});

test("G14: commands on the same rows in crossed order are all applied, each once", async () => {
  const jobs = await Promise.all([bench.submit(), bench.submit()]);
  const calls = Array.from({ length: 12 }, (_, n) => {
    const job = jobs[n % 2];
    assert.ok(job);
    return bench.call(bench.a, "PATCH", `/v1/jobs/${job.id}`, {
      body: { labels: { [`n${n}`]: "1" }, priority: n % 4 },
      ifMatch: "*",
    });
  });
  for (const reply of await Promise.all(calls)) assert.equal(reply.status, 200, reply.text);
  for (const job of jobs) {
    const { labels } = (await bench.call(bench.a, "GET", `/v1/jobs/${job.id}`)).json<JobView>();
    assert.equal(Object.keys(labels).length, 6);
  }
});

test("G4: If-None-Match: * lets a creation through, and stops what would change something that is there", async () => {
  const headers = { "if-none-match": "*" };
  const created = await bench.call(bench.a, "POST", "/v1/jobs", { body: submission(), headers });
  assert.equal(created.status, 201, created.text);
  const job = created.json<JobView>();
  const path = `/v1/jobs/${job.id}`;
  for (const [method, at, body] of [
    ["PATCH", path, { priority: 1 }],
    ["POST", `${path}:cancel`, {}],
  ] as const) {
    const reply = await bench.call(bench.a, method, at, { body, headers, ifMatch: "*" });
    assert.deepEqual([reply.status, reply.problem().code], [412, "precondition_failed"], reply.text);
  }
  assert.deepEqual((await bench.call(bench.a, "GET", path)).json(), job);
  const tag = { "if-none-match": '"1"' };
  const unclear = await bench.call(bench.a, "POST", "/v1/jobs", { body: submission(), headers: tag });
  assert.deepEqual([unclear.status, unclear.problem().code], [400, "invalid_request"]);
});
