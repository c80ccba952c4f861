import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { openEvents } from "../support/event-stream.ts";
import { openBench } from "../support/gateway.ts";
import { until } from "../support/until.ts";

test("G13: a connection on which nothing was asked does not keep a gateway from closing", async (t) => {
  const bench = await openBench({ after: (close) => t.after(close) });
  const gateway = await bench.start({ drainMs: 600_000 });
  const { hostname, port } = new URL(gateway.address);
  const idle = connect(Number(port), hostname);
  await once(idle, "connect");
  // The server has accepted it when it answers one that came later.
  assert.equal((await fetch(`${gateway.address}/healthz`)).status, 200);
  const gone = once(idle, "close");
  await gateway.close();
  await gone;
});

test("G13, G7: told to stop, a gateway is first no longer ready, serves on for its delay, then ends streams and closes", async (t) => {
  const closers: (() => void | Promise<void>)[] = [];
  t.after(async () => {
    for (const close of closers.toReversed()) await close();
  });
  const bench = await openBench({ after: (close) => void closers.push(close) });
  const gateway = await bench.start({ drainDelayMs: 4_000 });
  const get = (path: string) =>
    fetch(`${gateway.address}${path}`, {
      headers: { authorization: `Bearer ${bench.a.token}`, connection: "close" },
    });
  assert.equal((await get("/readyz")).status, 200);
  const stream = await openEvents(`${gateway.address}/v1/watch`, bench.a.token);

  let closed = false;
  const closing = gateway.close().then(() => {
    closed = true;
  });
  const notReady = await until("it is no longer ready", async () => {
    const answer = await get("/readyz");
    return answer.status === 503 ? answer : null;
  });
  assert.match(await notReady.text(), /listener: no progress/);
  // Whoever has not seen that yet is served as ever, on new connections and on open streams.
  assert.equal((await get("/v1/jobs")).status, 200);
  await bench.submit();
  assert.equal((await stream.change())?.operation, "job.submitted");
  assert.equal(closed, false);

  await closing;
  assert.equal(await stream.change(), null, "the stream has ended");
  await assert.rejects(get("/healthz"), "nobody listens");
});
