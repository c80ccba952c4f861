import assert from "node:assert/strict";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { after, test } from "node:test";
import { openBench } from "../support/gateway.ts";
import { until } from "../support/until.ts";

const streamsCount = 1_000;
const changesCount = 20;

const bench = await openBench(
  { after },
  { limits: { streamsPerPrincipal: streamsCount, tokenCheckMs: 600_000, heartbeatMs: 600_000, rate: null } },
);

/** Tells of each change that arrives, by its position in the stream. */
function listen(onChange: (index: number) => void): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const sent = httpRequest(
      bench.url("/v1/watch?kind=job"),
      { headers: { authorization: `Bearer ${bench.a.token}` }, agent: false },
      (response) => {
        assert.equal(response.statusCode, 200);
        let seen = 0;
        response.setEncoding("latin1").on("data", (text: string) => {
          // Small events arrive whole; what is cut in two is counted once all the same.
          for (const _event of text.matchAll(/event: job\.submitted/g)) onChange(seen++);
        });
        response.once("error", () => undefined);
        resolve(response);
      },
    );
    sent.once("error", reject);
    sent.end();
  });
}

test(`G7: ${streamsCount} streams cost one database reader`, async (t) => {
  const submittedAt: number[] = [];
  const delays: number[] = [];
  const streams: IncomingMessage[] = [];
  for (let n = 0; n < streamsCount; n += 50) {
    const some = Array.from({ length: 50 }, () =>
      listen((index) => delays.push(performance.now() - (submittedAt[index] ?? Number.NaN))),
    );
    streams.push(...(await Promise.all(some)));
  }
  t.after(() => {
    for (const stream of streams) stream.destroy();
  });
  await until("all are open", () => bench.gateway().openStreams() === streamsCount);

  const counted = { gateway: 0, dispatcher: 0 };
  for (const role of ["gateway", "dispatcher"] as const) {
    bench.kernel.db.pools.of(role).on("acquire", () => {
      counted[role] += 1;
    });
  }
  for (let n = 0; n < changesCount; n += 1) {
    await bench.submit();
    submittedAt.push(performance.now());
    await until("every stream has it", () => delays.length === streamsCount * (n + 1));
  }
  const sorted = delays.toSorted((a, b) => a - b);
  const at = (share: number) => (sorted[Math.ceil(share * sorted.length) - 1] ?? Number.NaN).toFixed(1);
  t.diagnostic(
    `from the answer of the submission to the arrival at each of ${streamsCount} streams: p50 ${at(0.5)} ms, p99 ${at(0.99)} ms`,
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
