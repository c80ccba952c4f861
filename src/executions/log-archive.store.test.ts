import assert from "node:assert/strict";
import { after, test } from "node:test";
import { finishAttempt, insertAttempt, settleLog } from "../../test/support/attempt-rows.ts";
import { openBench, submission } from "../../test/support/gateway.ts";
import { tenantA } from "../../test/support/kernel.ts";
import { memoryBlobs } from "../../test/support/memory-blobs.ts";
import type { BlobStore } from "../core/blob.port.ts";
import { isHoldfastError } from "../core/errors.ts";
import { brandId, type IncarnationId, uuidv7 } from "../core/ids.ts";
import { insertHeldLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import { transition } from "../core/postgres/transition.ts";
import { instant, seconds } from "../core/time.ts";
import type { JobView, LogLine } from "../wire/job.ts";
import { deleteLogChunks } from "./archive-log.store.ts";
import { archiveLog, trimLog } from "./archive-log.ts";
import { readAttemptSnapshot } from "./attempt.store.ts";
import { decide } from "./attempt.ts";
import { sinceOf } from "./job-log.ts";

const blobs = memoryBlobs();
const bench = await openBench({ after }, { blobs });
const { kernel } = bench;
const { db } = kernel;
const conflict = (error: unknown) => isHoldfastError(error, "conflict");

interface Ended {
  readonly job: string;
  readonly attempt: string;
  readonly sandboxes: readonly string[];
  readonly lease: HeldLease;
}

async function held(attempt: string): Promise<HeldLease> {
  const holder = brandId<IncarnationId>(uuidv7());
  await kernel.ask("delete from holdfast.leases where resource_id = $1 and kind = 'execution'", [attempt]);
  return transition(db, { role: "controller", tenant: tenantA, name: "hold" }, (tx) =>
    insertHeldLease(tx, { tenant: tenantA, kind: "execution", resource: attempt, dueAt: tx.now, holder }),
  );
}

/** A job of the two phases whose attempts are made here. */
async function submitted(): Promise<string> {
  const phases = ["fetch", "build"].map((name) => ({ name, kind: "compile" as const, command: ["true"] }));
  const reply = await bench.call(bench.a, "POST", "/v1/jobs", {
    body: { ...submission(), spec: { phases } },
  });
  assert.equal(reply.status, 201, reply.text);
  return reply.json<JobView>().id;
}

/** An attempt that has ended, with output of two phases: lines of many lengths, each chunk a second after the one before. */
async function ended(job: string, ordinal = 1, chunks = 40): Promise<Ended> {
  const { attempt, sandboxes } = await insertAttempt(kernel, tenantA, job, ordinal, ["fetch", "build"]);
  for (const [index, sandbox] of sandboxes.entries()) {
    await kernel.ask(
      `insert into holdfast.log_chunks (tenant_id, sandbox_id, seq, stream, at, body)
       select $1, $2, n, case when n % 5 = 0 then 'stderr' else 'stdout' end,
         '2026-01-02 03:00:00+00'::timestamptz + ($3::int * 100 + n) * interval '1 second',
         string_agg($4 || '.' || n || '.' || l || repeat('\u2028é', l) || case when n % 7 = 0 and l = 3 then '' else E'\\n' end, '' order by l)
       from generate_series(1, $5::int) n, generate_series(1, 3) l group by n`,
      [tenantA, sandbox, index, `${ordinal}.${index}`, chunks],
    );
    await kernel.ask(
      `update holdfast.sandbox_attempts s set log_seq = c.count, log_bytes = c.bytes, state = 'removed', removed_at = now()
       from (select count(*), sum(octet_length(body)) as bytes from holdfast.log_chunks where sandbox_id = $1) c
       where s.sandbox_id = $1`,
      [sandbox],
    );
    await settleLog(kernel, sandbox);
  }
  return { job, attempt, sandboxes, lease: await held(attempt) };
}

const archiving = (lease: HeldLease, store: BlobStore = blobs) => ({
  lease,
  signal: new AbortController().signal,
  context: { db, blobs: store, settings: { logRetention: seconds(3600) } },
});
const look = ({ attempt }: Ended) => readAttemptSnapshot(db, tenantA, attempt);

async function archived(one: Ended): Promise<void> {
  await archiveLog(archiving(one.lease), await look(one));
  assert.equal(decide(await look(one)).do, "trim");
  await trimLog(archiving(one.lease), await look(one));
  assert.equal(decide(await look(one)).do, "clean");
}

async function read(job: string, query = ""): Promise<LogLine[]> {
  const reply = await bench.call(bench.a, "GET", `/v1/jobs/${job}/logs${query}`);
  assert.equal(reply.status, 200, reply.text);
  return reply.text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as LogLine);
}

test("E19: archived output reads like live output: from any line on, of an attempt, a phase, since, and the last lines", async () => {
  const job = await submitted();
  const first = await ended(job, 1, 12);
  await finishAttempt(kernel, first.attempt, null);
  const second = await ended(job, 2, 30);
  await finishAttempt(kernel, second.attempt, job);
  const all = await read(job);
  assert.equal(all.length, 2 * 3 * 42);
  const some = all.filter((_, index) => index % 17 === 0 || index === all.length - 1);
  const queries = [
    "",
    "?attempt=1",
    "?attempt=2&phase=fetch",
    "?phase=build",
    "?limit=100",
    "?since=2026-01-02T03:01:45Z",
    "?since=2026-01-02T04:01:45.5%2B01:00&phase=build",
    ...[0, 1, 2, 89, 90, 91, 150, 251, 252, 253].map((tail) => `?tail=${tail}`),
    "?tail=5&phase=fetch",
    "?tail=40&attempt=1",
    "?tail=7&since=2026-01-02T03:01:45Z&attempt=2",
    ...some.flatMap(({ cursor }) => [
      `?after=${cursor}`,
      `?after=${cursor}&tail=9`,
      `?after=${cursor}&phase=build`,
    ]),
  ];
  const answers = async () => Promise.all(queries.map((query) => read(job, query)));
  const live = await answers();
  const of = (query: string) => live[queries.indexOf(query)];
  assert.deepEqual(of("?tail=91"), all.slice(-91));
  assert.deepEqual(of("?tail=0"), []);
  assert.deepEqual(of("?tail=253"), all);
  assert.deepEqual(
    of("?since=2026-01-02T03:01:45Z"),
    all.filter(({ at }) => at >= "2026-01-02T03:01:45"),
  );
  assert.deepEqual(of("?tail=5&phase=fetch"), all.filter(({ phase }) => phase === "fetch").slice(-5));
  for (const one of [second, first]) {
    await archived(one);
    assert.deepEqual(await answers(), live);
  }
  const [left] = await kernel.ask<{ count: number }>(
    "select count(*)::int from holdfast.log_chunks where sandbox_id = any ($1)",
    [[...first.sandboxes, ...second.sandboxes]],
  );
  assert.equal(left?.count, 0);
  const [row] = await kernel.ask<{ lines: string; bytes: string }>(
    "select lines, bytes from holdfast.log_archives where owner_id = $1",
    [second.attempt],
  );
  assert.equal(Number(row?.lines), 180);
});

test("E19: the database deletes no chunk that is in no archive", async () => {
  const job = await submitted();
  const one = await ended(job);
  await finishAttempt(kernel, one.attempt, job);
  const [sandbox] = (await look(one)).sandboxes;
  assert.ok(sandbox !== undefined);
  await assert.rejects(deleteLogChunks(db, one.lease, sandbox.id), conflict);
  assert.equal((await read(job)).length, 240);
});

test("E19: cut off at any point of archiving, nothing is lost, nothing comes twice, and another goes on", async () => {
  const job = await submitted();
  const one = await ended(job);
  await finishAttempt(kernel, one.attempt, job);
  const all = await read(job);
  const fault = new Error("cut off");
  const cutOff = (error: unknown) => error === fault;
  // Before the bytes are stored, and after, before it is recorded.
  const before: BlobStore = { ...blobs, put: () => Promise.reject(fault) };
  await assert.rejects(archiveLog(archiving(one.lease, before), await look(one)), cutOff);
  assert.deepEqual(await read(job), all);
  const behind: BlobStore = {
    ...blobs,
    async put(...put) {
      await blobs.put(...put);
      throw fault;
    },
  };
  await assert.rejects(archiveLog(archiving(one.lease, behind), await look(one)), cutOff);
  assert.deepEqual(await read(job), all);
  const stored = blobs.objects.size;
  // A controller that lost its lease records nothing and deletes nothing (E6).
  const lease = await held(one.attempt);
  await assert.rejects(archiveLog(archiving(one.lease), await look(one)), { code: "fenced" });
  assert.equal(decide(await look(one)).do, "archive");
  await archiveLog(archiving(lease), await look(one));
  assert.equal(blobs.objects.size, stored, "the same output is the same object");
  await assert.rejects(trimLog(archiving(one.lease), await look(one)), { code: "fenced" });
  assert.deepEqual(await read(job), all);
  // Recorded, and then only some of the chunks are gone.
  const [sandbox] = (await look(one)).sandboxes;
  assert.ok(sandbox !== undefined);
  await deleteLogChunks(db, lease, sandbox.id);
  assert.equal(decide(await look(one)).do, "trim");
  assert.deepEqual(await read(job), all);
  // Recorded twice is recorded once.
  await archiveLog(archiving(lease), { ...(await look(one)), output: "stored" });
  await trimLog(archiving(lease), await look(one));
  await trimLog(archiving(lease), await look(one));
  assert.equal(decide(await look(one)).do, "clean");
  assert.deepEqual(await read(job), all);
  const leases = await kernel.ask(
    "select queue from holdfast.leases where resource_id = $1 and kind = 'retention'",
    [one.attempt],
  );
  assert.deepEqual(leases, [{ queue: "log" }]);
});

test("E19: a reader that is in the middle of it when it is archived sees every line once", async () => {
  const job = await submitted();
  const one = await ended(job, 1, 400);
  // Long enough that the server has to wait for its reader.
  await kernel.ask("alter table holdfast.log_chunks disable trigger user");
  await kernel.ask(
    "update holdfast.log_chunks set body = rpad('', 20000, 'x') || E'\\n' || body where sandbox_id = any ($1)",
    [one.sandboxes],
  );
  await kernel.ask("alter table holdfast.log_chunks enable trigger user");
  const response = await fetch(bench.url(`/v1/jobs/${job}/logs?follow=true`), {
    headers: { authorization: `Bearer ${bench.a.token}` },
    signal: AbortSignal.timeout(30_000),
  });
  assert.ok(response.body !== null);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = (await reader.read()).value ?? "";
  await finishAttempt(kernel, one.attempt, job);
  await archived(one);
  for (let part = await reader.read(); !part.done; part = await reader.read()) text += part.value;
  const lines = text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as LogLine);
  assert.equal(lines.length, 2 * 400 * 4);
  assert.equal(new Set(lines.map(({ cursor }) => cursor)).size, lines.length);
  assert.deepEqual(lines, await read(job));
});

test("E19: output whose retention ended is gone; of another attempt it is still there", async () => {
  const job = await submitted();
  const first = await ended(job, 1, 3);
  await finishAttempt(kernel, first.attempt, null);
  const second = await ended(job, 2, 3);
  await finishAttempt(kernel, second.attempt, job);
  for (const one of [first, second]) await archived(one);
  const all = await read(job);
  const remove = async (one: Ended) => {
    const [row] = await kernel.ask<{ blob_key: string }>(
      "select blob_key from holdfast.log_archives where owner_id = $1",
      [one.attempt],
    );
    blobs.objects.delete(row?.blob_key ?? "");
    const bytesGone = await bench.call(
      bench.a,
      "GET",
      `/v1/jobs/${job}/logs?attempt=${one === first ? 1 : 2}`,
    );
    assert.deepEqual([bytesGone.status, bytesGone.problem().code], [410, "gone"]);
    await kernel.ask("update holdfast.log_archives set removed_at = retain_until where owner_id = $1", [
      one.attempt,
    ]);
  };
  await remove(first);
  const rest = all.filter(({ attempt }) => attempt === 2);
  assert.deepEqual(await read(job), rest);
  assert.deepEqual(await read(job, `?after=${all[0]?.cursor}`), rest);
  assert.deepEqual(await read(job, "?tail=100"), rest);
  assert.equal((await bench.call(bench.a, "GET", `/v1/jobs/${job}/logs?attempt=1`)).status, 410);
  await remove(second);
  for (const query of ["", "?follow=true", "?tail=3", "?phase=build"]) {
    const gone = await bench.call(bench.a, "GET", `/v1/jobs/${job}/logs${query}`);
    assert.deepEqual([gone.status, gone.problem().code], [410, "gone"], query);
  }
});

test("E19: since is a duration before now or an instant, and nothing else", async () => {
  const now = instant(1_767_323_045_000_000n);
  assert.equal(sinceOf("1h30m", now), now - 5_400_000_000n);
  assert.equal(sinceOf("2026-01-02T03:04:05Z", now), now);
  assert.equal(sinceOf("2026-01-02t05:34:05.25+02:30", now), now + 250_000n);
  for (const text of ["yesterday", "10", "2026-01-02", "2026-01-02T03:04:05", "-5m"]) {
    assert.throws(() => sinceOf(text, now), { code: "invalid_request" }, text);
  }
  const job = await submitted();
  const refused = await bench.call(bench.a, "GET", `/v1/jobs/${job}/logs?since=yesterday`);
  assert.deepEqual([refused.status, refused.problem().code], [400, "invalid_request"]);
  assert.equal((await bench.call(bench.a, "GET", `/v1/jobs/${job}/logs?tail=-1`)).status, 400);
});
