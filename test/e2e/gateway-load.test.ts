import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { after, test } from "node:test";
import type { ReadersNews, ReadersTask } from "../fixtures/stream-readers.ts";
import { openBench } from "../support/gateway.ts";
import { until } from "../support/until.ts";

const streamsCount = 1_000;
const changesCount = 20;

const bench = await openBench(
  { after },
  { limits: { streamsPerPrincipal: streamsCount, tokenCheckMs: 600_000, heartbeatMs: 600_000, rate: null } },
);

test(`G7: ${streamsCount} streams cost one database reader`, async (t) => {
  const task: ReadersTask = {
    port: bench.gateway().port,
    path: "/v1/watch?kind=job",
    token: bench.a.token,
    streams: streamsCount,
    event: "job.submitted",
  };
  const readers = fork(join(import.meta.dirname, "../fixtures/stream-readers.ts"), [JSON.stringify(task)]);
  t.after(async () => {
    readers.kill();
    await once(readers, "close");
  });
  const arrived: (readonly number[])[] = [];
  let open = false;
  readers.on("message", (news: ReadersNews) => {
    if (news.is === "open") open = true;
    if (news.is === "arrived") arrived.push(news.at);
  });
  await until("all are open", () => open && bench.gateway().openStreams() === streamsCount, 60_000);

  const counted = { gateway: 0, dispatcher: 0 };
  for (const role of ["gateway", "dispatcher"] as const) {
    bench.kernel.db.pools.of(role).on("acquire", () => {
      counted[role] += 1;
    });
  }
  const delays: number[] = [];
  const used = process.cpuUsage();
  for (let n = 0; n < changesCount; n += 1) {
    await bench.submit();
    const submittedAt = performance.timeOrigin + performance.now();
    const at = await until("every stream has it", () => arrived[n]);
    delays.push(...at.map((one) => one - submittedAt));
  }
  const { user, system } = process.cpuUsage(used);
  const sorted = delays.toSorted((a, b) => a - b);
  const at = (share: number) => (sorted[Math.ceil(share * sorted.length) - 1] ?? Number.NaN).toFixed(1);
  t.diagnostic(
    `from the answer of the submission to the arrival at each of ${streamsCount} streams: p50 ${at(0.5)} ms, p99 ${at(0.99)} ms; ` +
      `${((user + system) / 1000 / changesCount).toFixed(1)} ms of the server's CPU a change`,
  );
  t.diagnostic(
    `${changesCount} changes: ${counted.gateway} uses of the gateway's connections, ${counted.dispatcher} of the dispatcher's`,
  );
  // A submission authenticates, writes, and is read once for the tenant: three uses of a connection a change,
  // and with one reader a stream it would be a thousand more.
  assert.ok(counted.gateway <= 4 * changesCount, String(counted.gateway));
  const [row] = await bench.kernel.ask<{ n: number }>(
    "select count(*)::int as n from pg_stat_activity where datname = current_database() and usename = 'holdfast_app'",
  );
  assert.ok((row?.n ?? 0) <= 20, `${row?.n} connections`);
});
