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
import { heldCount, heldUntil, setHeld } from "./held-instants.ts";
import type { FromThread, HeldBlock, KeeperSettings, ToThread } from "./lease-keeper.ts";
import { openLine } from "./line.ts";
import { runOn } from "./transition.ts";

const port = parentPort;
if (port === null) throw new Error("lease-keeper.thread runs as a worker thread");
const settings = workerData as KeeperSettings;
const say = (message: FromThread) => port.postMessage(message);

/** One lease that is still held, found by its block and its place there. */
interface Held {
  readonly block: HeldBlock;
  readonly place: number;
  readonly tenant: string;
  readonly resource: string;
  readonly epoch: bigint;
}

let blocks: HeldBlock[] = [];
/** Those whose end was asked for: it is said once. */
const toldOf = new Set<string>();
/** With so many, those that are over as a whole are looked for. */
let sweepAt = 64;
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
  if (message === "close") closing.abort();
  else for (const block of message) takeIn(block);
  if (closing.signal.aborted) endPause();
});

function takeIn(block: HeldBlock): void {
  blocks.push(block);
  if (blocks.length >= sweepAt) sweep();
  roundWithin(block.untilMs - monotonicMs() - (settings.leaseMs - settings.renewMs));
}

function roundWithin(ms: number): void {
  const at = monotonicMs() + Math.max(0, ms);
  if (at >= nextRoundAt) return;
  nextRoundAt = at;
  endPause();
}

/** Most work is over long before its first renewal. */
function sweep(): void {
  blocks = blocks.filter(({ heldUntil: instants }) => heldCount(instants) > 0);
  sweepAt = Math.max(64, 2 * blocks.length);
  if (toldOf.size === 0) return;
  const living = new Set(blocks.map(({ id }) => String(id)));
  for (const name of toldOf) if (!living.has(name.split(" ")[0] ?? "")) toldOf.delete(name);
}

/** Gives up what has expired, and gives the rest. */
function living(): Held[] {
  sweep();
  const now = monotonicMs();
  return blocks.flatMap((block) => {
    const tenants = block.tenants.split(",");
    return block.resources.split(",").flatMap((resource, place) => {
      const until = heldUntil(block.heldUntil, place);
      if (until < 0) return [];
      const one = { block, place, resource, tenant: tenants[place] ?? "", epoch: block.epochs[place] ?? 0n };
      if (until > now) return [one];
      giveUp(one);
      return [];
    });
  });
}

/** It stays in its block until the main thread has heard of it. */
function giveUp({ block, place }: Held): void {
  setHeld(block.heldUntil, place, 0);
  say({ type: "lost", block: block.id, place });
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
  const leases = living();
  // A main loop that stands still can't notice that it should stop: its leases go to somebody who can act.
  if (monotonicMs() - getShared(settings.tickedAt) > settings.stallMs)
    return Math.min(retryMs, settings.stallMs / 4);
  const client = line.client();
  if (client === undefined) return settings.renewMs;
  const sentAt = monotonicMs();
  const renewal = runOn(client, renewLeases, {
    holder: settings.holder,
    lease_us: BigInt(settings.leaseMs * 1_000),
    tenants: leases.map((lease) => lease.tenant),
    kinds: leases.map((lease) => lease.block.kind),
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
  if (getShared(settings.renewedAt) === 0) say({ type: "at work" });
  setShared(settings.renewedAt, sentAt);
  let busy = false;
  for (const { place, state, left_us, cancelled } of answer) {
    const lease = leases[place - 1];
    if (lease === undefined) continue;
    // Some leases have a limit of their own: what the server gave can be less than what was asked for.
    const leftMs = Math.min(settings.leaseMs, Number(left_us) / 1_000);
    const name = `${lease.block.id} ${lease.place}`;
    if (cancelled && !toldOf.has(name)) {
      toldOf.add(name);
      say({ type: "cancelled", block: lease.block.id, place: lease.place });
    }
    if (state === "renewed") setHeld(lease.block.heldUntil, lease.place, sentAt + leftMs);
    else if (state === "busy") busy = true;
    else giveUp(lease);
  }
  return busy ? retryMs : settings.renewMs;
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
