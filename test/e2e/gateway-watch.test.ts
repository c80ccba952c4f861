import assert from "node:assert/strict";
import { after, afterEach, test } from "node:test";
import { uuidv7 } from "../../src/core/ids.ts";
import { transition } from "../../src/core/postgres/transition.ts";
import { revokeToken } from "../../src/core/tenant.store.ts";
import type { JobView } from "../../src/wire/job.ts";
import type { ProblemDocument } from "../../src/wire/problem.ts";
import { append } from "../support/changes.ts";
import { type EventStream, openEvents, type StreamEvent } from "../support/event-stream.ts";
import { openBench } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";
import { until } from "../support/until.ts";

const bench = await openBench(
  { after },
  {
    limits: {
      heartbeatMs: 100,
      tokenCheckMs: 100,
      streamsPerPrincipal: 3,
      streamBufferBytes: 65_536,
      streamStallMs: 500,
      watchBatch: 10,
    },
  },
);
const opened: EventStream[] = [];
const watch = async (query = "", who = bench.a, headers: Record<string, string> = {}) => {
  const stream = await openEvents(bench.url(`/v1/watch${query}`), who.token, headers);
  opened.push(stream);
  return stream;
};
const idle = () => until("no stream is open", () => bench.gateway().openStreams() === 0);
/** What was committed a moment ago has its position: "now" is after it. */
const settled = () =>
  until("all changes have positions", async () => {
    const [row] = await bench.kernel.ask<{ n: number }>(
      "select count(*)::int as n from holdfast.resource_changes where position is null",
    );
    return row?.n === 0;
  });

afterEach(async () => {
  for (const stream of opened.splice(0)) stream.close();
  await idle();
  await settled();
});

/** Changes of a size that matters, in one transaction. */
const bulk = (count: number, bytes: number) =>
  transition(bench.kernel.db, { role: "gateway", tenant: tenantA, name: "bulk" }, async (tx) => {
    for (let n = 0; n < count; n += 1)
      await append(tx, { kind: "bulk", body: { n, fill: uuidv7().repeat(bytes / 36) } });
  });

test("G7: without a cursor the stream begins now, and first tells where it stands", async () => {
  await bench.submit(bench.a, { name: "before" });
  await settled();
  const stream = await watch();
  assert.equal(stream.status, 200);
  assert.match(String(stream.headers["content-type"]), /^text\/event-stream/);
  assert.equal((await stream.next())?.event, "bookmark");
  const job = await bench.submit(bench.a, { name: "after" });
  const change = await stream.change();
  assert.deepEqual(
    [change?.operation, change?.kind, change?.id, change?.resource_version],
    ["job.submitted", "job", job.id, "1"],
  );
  assert.deepEqual(change?.body, job);
});

test("G7, S14: a stream resumes strictly after its cursor, by query and by Last-Event-ID, also elsewhere", async () => {
  const first = await watch();
  await first.next();
  const jobs: JobView[] = [];
  for (let n = 0; n < 25; n += 1) jobs.push(await bench.submit(bench.a, { name: `n${n}` }));
  const cursors: string[] = [];
  for (const job of jobs) {
    const change = await first.change();
    assert.equal(change?.id, job.id);
    cursors.push(change?.cursor ?? "");
  }
  first.close();
  await bench.restart();
  for (const at of [0, 11, 23]) {
    const cursor = cursors[at] ?? "";
    for (const stream of [
      await watch(`?after=${cursor}`),
      await watch("", bench.a, { "last-event-id": cursor }),
    ]) {
      for (const job of jobs.slice(at + 1)) assert.equal((await stream.change())?.id, job.id);
      stream.close();
    }
  }
  await idle();
});

test("S14: a list and a watch from its cursor leave no gap, whatever the filter", async () => {
  const listed = await bench.call(bench.a, "GET", "/v1/jobs");
  const { cursor, items } = listed.json<{ cursor: string; items: JobView[] }>();
  const job = await bench.submit();
  assert.ok(!items.some(({ id }) => id === job.id));
  for (const query of ["", "&kind=job", `&job=${job.id}`]) {
    const stream = await watch(`?after=${cursor}${query}`);
    let change = await stream.change();
    // Changes of jobs in the list may follow once more; the new one follows for certain.
    while (change !== null && change.id !== job.id) change = await stream.change();
    assert.equal(change?.id, job.id);
    stream.close();
  }
  await idle();
});

test("G7: filters hold in the past and live, and a quiet stream still moves its cursor", async () => {
  const mine = await bench.submit();
  await settled();
  const stream = await watch(`?job=${mine.id}`);
  const start = (await stream.next())?.id;
  await bench.submit();
  await bench.call(bench.a, "POST", `/v1/jobs/${mine.id}:cancel`);
  await bench.submit();
  assert.equal((await stream.change())?.operation, "job.cancelled");
  // What others changed afterwards reaches this stream as a bookmark alone.
  const bookmark = await stream.next();
  assert.equal(bookmark?.event, "bookmark");
  assert.notEqual(bookmark?.id, start);
  await until("heartbeats come", () => stream.comments() > 0);
  stream.close();
  const other = await bench.call(bench.a, "GET", `/v1/watch?after=${bookmark?.id}&kind=job`);
  assert.deepEqual([other.status, other.problem().code], [400, "invalid_cursor"]);
  await idle();
});

test("G7: labels filter in the past and live, by what a change leaves", async () => {
  const { cursor } = (await bench.call(bench.a, "GET", "/v1/jobs")).json<{ cursor: string }>();
  const web = await bench.submit(bench.a, { labels: { team: "web", tier: "1" } });
  await bench.submit(bench.a, { labels: { team: "db" } });
  const query = "?label=team=web&label=tier=1";
  const past = await watch(`${query}&after=${cursor}`);
  assert.equal((await past.change())?.id, web.id);
  const relabel = (labels: object) =>
    bench.call(bench.a, "PATCH", `/v1/jobs/${web.id}`, { body: { labels }, ifMatch: "*" });
  await relabel({ tier: "2" });
  await relabel({ tier: "1", seen: "yes" });
  const back = await past.change();
  assert.deepEqual([back?.id, back?.resource_version], [web.id, "3"]);
  const other = await bench.call(bench.a, "GET", `/v1/watch?after=${back?.cursor}&label=team=web`);
  assert.deepEqual([other.status, other.problem().code], [400, "invalid_cursor"]);
  past.close();
});

test("G7, G1: a stream shows its own tenant alone", async () => {
  const [own, others] = [await watch("", bench.b), await watch()];
  await Promise.all([own.next(), others.next()]);
  await bench.submit(bench.a);
  const job = await bench.submit(bench.b);
  assert.equal((await own.change())?.id, job.id);
  const cursor = (await others.change())?.cursor;
  const stolen = await bench.call(bench.b, "GET", `/v1/watch?after=${cursor}`);
  assert.deepEqual([stolen.status, stolen.problem().code], [400, "invalid_cursor"]);
  own.close();
  others.close();
  await idle();
});

test("G7: a reader that is too slow is cut off, and resumes without loss from its last cursor", async () => {
  const stream = await watch("?kind=bulk");
  const start = (await stream.next())?.id ?? "";
  stream.stall();
  await until("it was cut off", async () => {
    await bulk(40, 20_000);
    return bench.gateway().openStreams() === 0;
  });
  stream.resume();
  let last = start;
  let seen = -1;
  for (let change = await stream.change(); change !== null; change = await stream.change()) {
    const { n } = change.body as { n: number };
    assert.equal(n, (seen + 1) % 40);
    seen = n;
    last = change.cursor;
  }
  const [{ total } = { total: 0 }] = await bench.kernel.ask<{ total: number }>(
    "select count(*)::int as total from holdfast.resource_changes where kind = 'bulk'",
  );
  const again = await watch(`?kind=bulk&after=${last}`);
  const next = await again.change();
  assert.ok(next);
  assert.equal((next.body as { n: number }).n, (seen + 1) % 40);
  assert.ok(total > 0);
  again.close();
  await idle();
});

test("G7: a reader that stalls while it catches up is cut off too", async () => {
  const { cursor } = (await bench.call(bench.a, "GET", "/v1/jobs")).json<{ cursor: string }>();
  for (let n = 0; n < 20; n += 1) await bulk(20, 20_000);
  const stream = await watch(`?kind=bulk&after=${cursor}`);
  stream.stall();
  await idle();
  stream.close();
});

test("G7: a cursor that is too old is 410, with a fresh one", async () => {
  const { cursor } = (await bench.call(bench.a, "GET", "/v1/jobs")).json<{ cursor: string }>();
  await bench.submit();
  await settled();
  await bench.kernel.ask("update holdfast.change_counter set floor = position");
  const reply = await bench.call(bench.a, "GET", `/v1/watch?after=${cursor}`);
  const problem = reply.problem() as ProblemDocument & { cursor: string };
  assert.deepEqual([reply.status, problem.code], [410, "cursor_expired"]);
  const stream = await watch(`?after=${problem.cursor}`);
  const job = await bench.submit();
  assert.equal((await stream.change())?.id, job.id);
});

test("G7: streams of a principal are bounded", async () => {
  const streams = await Promise.all([watch(), watch(), watch()]);
  const reply = await bench.call(bench.a, "GET", "/v1/watch");
  assert.deepEqual([reply.status, reply.problem().code], [429, "too_many_streams"]);
  assert.ok(reply.headers.get("retry-after"));
  const neighbour = await watch("", bench.b);
  assert.equal(neighbour.status, 200);
  for (const stream of [...streams, neighbour]) stream.close();
  await idle();
  assert.equal((await watch()).status, 200);
});

test("G7: a stream ends when its token is revoked or expires", async () => {
  for (const ends of ["revoked", "expired"]) {
    const who = await bench.caller(tenantA, ["watch:read"], ends === "expired" ? 3 : 3600);
    const stream = await watch("", who);
    assert.equal(stream.status, 200);
    if (ends === "revoked") await revokeToken(bench.kernel.db, { tenant: tenantA, token: who.tokenId });
    let last: StreamEvent | undefined;
    for (let event = await stream.next(); event !== null; event = await stream.next()) last = event;
    assert.ok(last);
    assert.deepEqual([last.event, (last.data as ProblemDocument).code], ["error", "unauthenticated"]);
  }
});

test("G7: on shutdown streams end at once, and the server with them", async () => {
  const gateway = await bench.start();
  const stream = await openEvents(`${gateway.address}/v1/watch`, bench.b.token);
  assert.equal((await stream.next())?.event, "bookmark");
  const closing = gateway.close();
  assert.equal(await stream.change(), null);
  await closing;
});

test("cursors that nobody gave are refused", async () => {
  for (const query of ["after=x", "after=AAAA", `after=${"A".repeat(60)}`, "kind=NO", "job=1", "nothing=1"]) {
    const reply = await bench.call(bench.a, "GET", `/v1/watch?${query}`);
    assert.equal(reply.status, 400, query);
  }
});
