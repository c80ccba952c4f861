import { setTimeout as delay } from "node:timers/promises";
import { HoldfastError } from "../core/errors.ts";
import { registerIncarnation } from "../core/incarnation.store.ts";
import { leaseTime, renewEveryMs } from "../core/lease.ts";
import { startLookout } from "../core/lookout.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { startLeaseKeeper } from "../core/postgres/lease-keeper.ts";
import { translateFirst } from "../core/postgres/sqlstate.ts";
import { supportedSchema } from "../core/schema/version.ts";
import { startSequencer } from "../core/sequencer.ts";
import { type Microseconds, seconds, toMilliseconds } from "../core/time.ts";
import type { WorkMetric } from "./counters.ts";
import { isDefinition, isNamedBy, queuePattern, type WorkDefinition } from "./define.ts";
import { startEngine } from "./engine.ts";
import type { Engine, EngineOptions } from "./engine-options.ts";
import type { Work } from "./handle.ts";
import { given, refuseUnknown } from "./known-names.ts";
import { openedWork } from "./opened.ts";
import { leaseMin } from "./policy.ts";
import { refusal } from "./value.ts";
import { registerRunner, registerVersion } from "./version.store.ts";

/** Runs the work of one process. */
export interface Worker {
  /** Handlers in flight now; never more than the concurrency. */
  readonly inFlight: number;
  /**
   * Claims nothing more, gives back what it has not started, waits for what runs (then aborts its signals), and
   * settles it. Resolves when all of it is recorded.
   */
  stop(): Promise<void>;
}

export interface WorkerOptions {
  readonly works: readonly WorkDefinition<never>[];
  /** Handlers in flight, at most. */
  readonly concurrency?: number;
  /** Only these queues; each work's own when left out. */
  readonly queues?: readonly string[];
  /** How long an unrenewed lease lasts: the longest that the work of a dead process waits. */
  readonly lease?: Microseconds;
  /** How long `stop` waits for handlers before it aborts their signals. */
  readonly grace?: Microseconds;
  /** How long the event loop may stand still before the process counts as hung and loses what it runs. */
  readonly stallMs?: number;
  /** Names the policy under which late results are kept (1 to 128 characters). */
  readonly retention?: string;
  readonly release?: string;
  /**
   * For counting: the work's name and what an attempt came to, once for each whose code gave its word, and only when it
   * is known: `finished`, of a failure `retry`, `failed` or `suspended`, `settled` where it counted and only the answer was
   * lost, of a late word `quarantined`, `unknown` where it leaves open whether the effect has happened, and `dropped` when
   * it was not recorded. Must not throw.
   */
  readonly onSettled?: (name: string, outcome: string) => void;
  /** For counting attempts and refusals; `workCounters()` makes one that can be read. Must not throw. */
  readonly onMetric?: (metric: WorkMetric) => void;
}

const optionNames: ReadonlySet<string> = new Set(
  Object.keys({
    works: true,
    concurrency: true,
    queues: true,
    lease: true,
    grace: true,
    stallMs: true,
    retention: true,
    release: true,
    onSettled: true,
    onMetric: true,
  } satisfies Record<keyof WorkerOptions, true>),
);
/** A ring for each turn would wake every process two thousand times a second. */
const ringEveryMs = 50;
/** A ring is heard by the engine itself: what it takes comes first, and is not held up by the look. */
const lookAfterMs = 10;
const concurrencyMax = 1_000;
/** Together they fit the timers that count them, which have room for 24 days. */
const leaseMax = seconds(86_400);
const graceMax = seconds(7 * 86_400);
/** Without a database a worker starts all the same, and tries. */
const keeperStartsMs = 5_000;

/** Register what this process runs (W2), and run it until stopped. The login plays worker and dispatcher, too. */
export async function createWorker(work: Work, options: WorkerOptions): Promise<Worker> {
  const { db, settings, name, doorbell, onError } = openedWork(work);
  checkOptions(options);
  const concurrency = options.concurrency ?? 10;
  const lanes = new Map<string, WorkDefinition>();
  const versions: number[] = [];
  for (const one of options.works as readonly WorkDefinition[]) {
    const number = await registerVersion(db, one).catch(rethrowFirst);
    versions.push(number);
    for (const queue of options.queues ?? [one.queue]) lanes.set(`${number}.${queue}`, one);
  }
  const leaseUs = options.lease ?? leaseTime;
  const holder = await registerIncarnation(db, {
    process: name,
    release: options.release ?? "unknown",
    schema: supportedSchema,
  }).catch(rethrowFirst);
  await registerRunner(db, holder, versions);
  const keeper = startLeaseKeeper({
    settings,
    holder,
    name: `holdfast/${name}`,
    leaseUs,
    renewMs: Math.min(renewEveryMs, toMilliseconds(leaseUs) / 3),
    ...(given(options.stallMs) ? { stallMs: options.stallMs } : {}),
    onError: (error) => onError(error, "leases could not be renewed"),
    onLost: () => counting(options).onRefused?.("", "renewal", "lost"),
  });
  // A handler may stand on the event loop from its first moment on: somebody has to renew its lease already.
  await Promise.race([keeper.atWork, delay(keeperStartsMs, undefined, { ref: false })]);
  const lookout = startLookout({
    db,
    doorbell,
    kinds: ["work"],
    afterRingMs: lookAfterMs,
    onError: (error) => onError(error, "the database did not answer the lookout"),
  });
  const sequencer = startSequencer({
    // Nobody in this process waits for a position.
    db: { ...db, committed: () => doorbell.ringOthers() },
    lookout,
    onError: (error) => onError(error, "changes could not be stamped"),
  });
  let rungAtMs = 0;
  const engine: Engine = startEngine({
    db,
    holder,
    keeper,
    lanes,
    concurrency,
    leaseUs,
    graceMs: toMilliseconds(options.grace ?? leaseUs),
    retention: options.retention ?? null,
    onError,
    ...counting(options),
    onTurn() {
      const now = monotonicMs();
      if (now - rungAtMs < ringEveryMs) return;
      rungAtMs = now;
      // This process has nothing to take of it, and stamps it.
      doorbell.ringOthers();
      lookout.soon();
    },
  });
  const deaf = doorbell.onRing(() => engine.ring());
  const blind = lookout.on("due:work", ({ queues }) => {
    if (queues.some((queue) => lanes.has(queue))) engine.wake();
  });
  return {
    get inFlight() {
      return engine.inFlight;
    },
    async stop() {
      deaf();
      blind();
      await engine.stop();
      await sequencer.stop();
      await lookout.stop();
      await keeper.close();
    },
  };
}

/** Before anything of it is started. */
function checkOptions(options: WorkerOptions): void {
  refuseUnknown(options, optionNames, []);
  const {
    works,
    concurrency,
    queues,
    lease,
    grace,
    stallMs,
    retention,
    onSettled,
    onMetric,
  }: { readonly [name in keyof WorkerOptions]?: unknown } = options;
  if (!Array.isArray(works) || works.length === 0 || !works.every(isDefinition))
    throw refusal(["works"], "is no array of one or more that defineWork has given");
  if (given(concurrency) && !isWithin(concurrency, 1, concurrencyMax))
    throw new HoldfastError("invalid_request", "a worker runs 1 to 1000 handlers at a time");
  if (
    given(queues) &&
    !(Array.isArray(queues) && queues.length > 0 && queues.every((one) => isNamedBy(queuePattern, one)))
  )
    throw refusal(["queues"], "is no array of one or more names, each 1 to 40 of a-z, 0-9 and inner _ -");
  if (given(lease) && !isBetween(lease, leaseMin, leaseMax))
    throw refusal(["lease"], "is no bigint of microseconds from a second to a day: use seconds()");
  if (given(grace) && !isBetween(grace, 0n, graceMax))
    throw refusal(["grace"], "is no bigint of microseconds from none to seven days: use seconds()");
  if (given(stallMs) && !(typeof stallMs === "number" && Number.isFinite(stallMs) && stallMs > 0))
    throw refusal(["stallMs"], "is no finite number of milliseconds above 0");
  if (given(retention) && !(typeof retention === "string" && /^[^\0]{1,128}$/s.test(retention)))
    throw refusal(["retention"], "is no name of 1 to 128 characters");
  for (const [name, hear] of Object.entries({ onSettled, onMetric }))
    if (given(hear) && typeof hear !== "function") throw refusal([name], "is no function");
}

function isWithin(value: unknown, least: number, most: number): boolean {
  return typeof value === "number" && Number.isInteger(value) && value >= least && value <= most;
}

function isBetween(value: unknown, least: bigint, most: bigint): boolean {
  return typeof value === "bigint" && value >= least && value <= most;
}

/** What the engine tells, for whoever counts. */
function counting({ onSettled, onMetric }: WorkerOptions): Pick<EngineOptions, "onSettled" | "onRefused"> {
  if (onMetric === undefined) return onSettled === undefined ? {} : { onSettled };
  return {
    onSettled(work, outcome) {
      onSettled?.(work, outcome);
      onMetric({ name: "holdfast_work_attempts_total", work, outcome });
    },
    onRefused: (work, boundary, reason) =>
      onMetric({ name: "holdfast_work_refusals_total", work, boundary, reason }),
  };
}

/** What a role does first tells whether the login may play it. */
function rethrowFirst(error: unknown): never {
  throw translateFirst(error);
}
