/**
 * The thread that renews leases, so that a busy event loop of the main thread loses none. It has a connection
 * of its own. Its clock is the monotonic one: what has not been renewed in time is given up here, too, and
 * the database refuses to renew what has expired.
 */
import { setTimeout as delay } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";
import { endIncarnation } from "../incarnation.sql.ts";
import { renewLeases } from "../lease.sql.ts";
import { getShared, monotonicMs, setShared } from "../monotonic.ts";
import type { FromThread, Held, KeeperSettings, ToThread } from "./lease-keeper.ts";
import { openLine } from "./line.ts";
import { runOn } from "./transition.ts";

const port = parentPort;
if (port === null) throw new Error("lease-keeper.thread runs as a worker thread");
const settings = workerData as KeeperSettings;
const say = (message: FromThread) => port.postMessage(message);

const held = new Map<string, Held>();
/** Those whose end was asked for: it is said once. */
const toldOf = new Set<string>();
/** A renewal that takes longer counts as failed, and its connection as broken. */
const answerMaxMs = Math.max(50, Math.min(5_000, settings.renewMs));
const retryMs = Math.min(1_000, settings.renewMs / 4);

const closing = new AbortController();
let endPause = () => {};
let nextRoundAt = 0;

const line = openLine({
  settings: settings.connection,
  role: "dispatcher",
  name: settings.name,
  onOpen: () => roundWithin(0),
  onError: (error) => say({ type: "error", message: error.message }),
});

port.on("message", (message: ToThread) => {
  switch (message.type) {
    case "swap":
      for (const key of message.drop) {
        held.delete(key);
        toldOf.delete(key);
      }
      for (const lease of message.hold) {
        held.set(lease.key, lease);
        // One that came late in its life can't wait for the usual round.
        roundWithin(lease.heldUntilMs - monotonicMs() - (settings.leaseMs - settings.renewMs));
      }
      return;
    case "close":
      closing.abort();
      endPause();
      return;
    default:
      message satisfies never;
  }
});

function roundWithin(ms: number): void {
  nextRoundAt = Math.min(nextRoundAt, monotonicMs() + Math.max(0, ms));
  endPause();
}

async function pauseUntilRound(): Promise<void> {
  while (!closing.signal.aborted) {
    const restMs = nextRoundAt - monotonicMs();
    if (restMs <= 0) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, restMs);
      endPause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }
}

/** How long until the next round. */
async function round(): Promise<number> {
  giveUpExpired();
  // A main loop that stands still can't notice that it should stop: its leases go to somebody who can act.
  if (monotonicMs() - getShared(settings.tickedAt) > settings.stallMs)
    return Math.min(retryMs, settings.stallMs / 4);
  const client = line.client();
  if (client === undefined) return settings.renewMs;
  const leases = [...held.values()];
  const sentAt = monotonicMs();
  const renewal = runOn(client, renewLeases, {
    holder: settings.holder,
    lease_us: BigInt(settings.leaseMs * 1_000),
    tenants: leases.map((lease) => lease.tenant),
    kinds: leases.map((lease) => lease.kind),
    resources: leases.map((lease) => lease.resource),
    epochs: leases.map((lease) => lease.epoch),
  });
  const answer = await Promise.race([
    renewal.catch((error: unknown) => {
      say({ type: "error", message: String(error) });
      return undefined;
    }),
    delay(answerMaxMs, undefined, { ref: false }),
  ]);
  if (answer === undefined) {
    line.reset();
    return retryMs;
  }
  setShared(settings.renewedAt, sentAt);
  let busy = false;
  for (const { place, state, left_us, cancelled } of answer) {
    const lease = leases[place - 1];
    if (lease === undefined) continue;
    // Some leases have a limit of their own: what the server gave can be less than what was asked for.
    const leftMs = Math.min(settings.leaseMs, Number(left_us) / 1_000);
    if (cancelled && !toldOf.has(lease.key)) {
      toldOf.add(lease.key);
      say({ type: "cancelled", key: lease.key });
    }
    if (state === "renewed") setShared(lease.heldUntil, sentAt + leftMs);
    else if (state === "busy") busy = true;
    else giveUp(lease);
  }
  return busy ? retryMs : settings.renewMs;
}

function giveUpExpired(): void {
  const now = monotonicMs();
  for (const lease of held.values()) {
    if (getShared(lease.heldUntil) <= now) giveUp(lease);
  }
}

function giveUp(lease: Held): void {
  setShared(lease.heldUntil, 0);
  held.delete(lease.key);
  say({ type: "lost", key: lease.key });
}

while (!closing.signal.aborted) {
  nextRoundAt = Number.POSITIVE_INFINITY;
  const restMs = await round();
  roundWithin(restMs);
  await pauseUntilRound();
}

const client = line.client();
if (client !== undefined) {
  const ending = runOn(client, endIncarnation, { incarnation: settings.holder }).catch((error: unknown) =>
    say({ type: "error", message: String(error) }),
  );
  await Promise.race([ending, delay(answerMaxMs, undefined, { ref: false })]);
}
await line.close();
port.close();
