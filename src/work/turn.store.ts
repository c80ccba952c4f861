import { brandId, type IncarnationId, type TenantId } from "../core/ids.ts";
import type { HeldLease } from "../core/lease.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { isRetryable } from "../core/postgres/sqlstate.ts";
import { type Database, runAlone, transition } from "../core/postgres/transition.ts";
import { type Instant, type Microseconds, toMilliseconds } from "../core/time.ts";
import type { Verdict } from "./define.ts";
import * as sql from "./turn.sql.ts";
import { proveWork } from "./work.sql.ts";

/** An item that this worker has and may ask a permit for. */
export interface Claimed {
  readonly tenant: TenantId;
  readonly id: string;
  /** The version's number and the queue: `17.mail`. */
  readonly lane: string;
  readonly epoch: bigint;
  /** On this machine's monotonic clock, and never later than the database's. */
  readonly heldUntilMs: number;
}

/** An attempt that was admitted: its code may run, once, by this process. */
export interface Permitted extends Claimed {
  readonly attempt: number;
  readonly input: unknown;
  readonly providerKey: string | null;
  readonly circuitKey: string | null;
  readonly acceptedAt: Instant;
  readonly deadline: Instant | null;
  /** Started later than this it could begin after its cutoff or its lease: it is given back instead. */
  readonly startByMs: number;
}

export type Outcome =
  | { readonly type: "succeeded"; readonly result: string }
  /** `final`: no other attempt is tried. */
  | { readonly type: "failed"; readonly code: string; readonly message: string; readonly final: boolean }
  /** Its code was never called. */
  | { readonly type: "returned" };

export interface Done {
  readonly item: Claimed & { readonly attempt: number; readonly circuitKey: string | null };
  readonly outcome: Outcome;
}

export interface Turn {
  readonly permitted: readonly Permitted[];
  /** Asked permits that were not given, and why: `deferred`, `closed`, `suspended`, `refused`. */
  readonly passed: readonly { readonly item: Claimed; readonly what: string }[];
  /** Completions that are not this holder's to settle. */
  readonly unmatched: readonly Done[];
  /** What failures came to: `retry`, `failed`, `suspended`. */
  readonly settled: readonly { readonly done: Done; readonly what: string }[];
}

export interface Claims {
  readonly claimed: readonly Claimed[];
  /** Their lease expired with an open permit. */
  readonly lost: readonly Claimed[];
  readonly toReconcile: readonly Claimed[];
}

const triesMax = 6;

/** Takes due items of the lanes, the tenants sharing the limit. Not durable by itself: nothing runs by a claim alone. */
export async function claimWork(
  db: Database,
  claim: {
    readonly holder: IncarnationId;
    readonly lanes: readonly string[];
    readonly limit: number;
    readonly leaseUs: Microseconds;
  },
): Promise<Claims> {
  const heldUntilMs = monotonicMs() + toMilliseconds(claim.leaseUs);
  const rows = await runAlone(db, "dispatcher", sql.claimWork, {
    deployment_epoch: db.deploymentEpoch,
    holder: claim.holder,
    lanes: claim.lanes,
    limit: claim.limit,
    lease_us: claim.leaseUs,
  });
  const [claimed, lost, toReconcile]: [Claimed[], Claimed[], Claimed[]] = [[], [], []];
  for (const row of rows) {
    const item = {
      tenant: brandId<TenantId>(row.tenant_id),
      id: row.work_id,
      lane: row.lane,
      epoch: row.epoch,
      heldUntilMs,
    };
    if (row.what === "claimed") claimed.push(item);
    else (row.what === "recover" ? lost : toReconcile).push(item);
  }
  return { claimed, lost, toReconcile };
}

/**
 * One turn: settles what is done and permits what comes next, in one statement and one commit. It throws as a
 * whole, also for one item that the database refuses: `turnOrHalves` finds that one.
 */
export async function turnWork(
  db: Database,
  holder: IncarnationId,
  done: readonly Done[],
  next: readonly Claimed[],
): Promise<Turn> {
  const tenants = new Set<string>();
  for (const { item } of done) tenants.add(item.tenant);
  for (const item of next) tenants.add(item.tenant);
  const params = {
    deployment_epoch: db.deploymentEpoch,
    holder,
    tenants: [...tenants],
    done_tenants: done.map(({ item }) => item.tenant),
    done_works: done.map(({ item }) => item.id),
    done_epochs: done.map(({ item }) => item.epoch),
    done_attempts: done.map(({ item }) => item.attempt),
    outcomes: done.map(({ outcome }) =>
      outcome.type === "failed" && outcome.final ? "failed_for_good" : outcome.type,
    ),
    results: done.map(({ outcome }) => (outcome.type === "succeeded" ? outcome.result : "")),
    codes: done.map(({ outcome }) => (outcome.type === "failed" ? outcome.code : "")),
    messages: done.map(({ outcome }) => (outcome.type === "failed" ? outcome.message : "")),
    circuits: done.map(({ item }) => item.circuitKey ?? ""),
    next_tenants: next.map((item) => item.tenant),
    next_works: next.map((item) => item.id),
    next_epochs: next.map((item) => item.epoch),
  };
  for (let tries = 1; ; tries += 1) {
    const sentAtMs = monotonicMs();
    try {
      return told(await runAlone(db, "worker", sql.turnWork, params), done, next, sentAtMs);
    } catch (error) {
      const cause: unknown = error instanceof Error && error.cause !== undefined ? error.cause : error;
      if (!isRetryable(cause) || tries === triesMax) throw error;
    }
  }
}

function told(
  rows: readonly sql.TurnWorkRow[],
  done: readonly Done[],
  next: readonly Claimed[],
  sentAtMs: number,
): Turn {
  const permitted: Permitted[] = [];
  const passed: { item: Claimed; what: string }[] = [];
  const unmatched: Done[] = [];
  const settled: { done: Done; what: string }[] = [];
  for (const row of rows) {
    if (row.place < 0) {
      const one = done[-row.place - 1];
      if (one === undefined) continue;
      if (row.what === "unmatched") unmatched.push(one);
      else settled.push({ done: one, what: row.what });
      continue;
    }
    const item = next[row.place - 1];
    if (item === undefined) continue;
    if (row.what !== "permitted" || row.accepted_at === null) {
      passed.push({ item, what: row.what });
      continue;
    }
    permitted.push({
      ...item,
      attempt: row.attempt ?? 1,
      input: row.input,
      providerKey: row.provider_key,
      circuitKey: row.circuit_key,
      acceptedAt: row.accepted_at,
      deadline: row.not_after,
      // Rounded down: this side never believes in more time than the database does.
      startByMs: sentAtMs + Math.floor(Number(row.left_microseconds ?? 0n) / 1_000),
      heldUntilMs: sentAtMs + Math.floor(Number(row.lease_microseconds ?? 0n) / 1_000),
    });
  }
  return { permitted, passed, unmatched, settled };
}

/** Decides what follows for items whose lease expired with an open permit. Gives what each came to. */
export async function recoverWork(db: Database, lost: readonly Claimed[]): Promise<string[]> {
  const rows = await runAlone(db, "worker", sql.recoverWork, {
    deployment_epoch: db.deploymentEpoch,
    tenants: lost.map((item) => item.tenant),
    works: lost.map((item) => item.id),
  });
  return rows.map((row) => row.what);
}

/**
 * What has become of a completion that matched nothing: `settled` when it had and only the answer was lost, `held`
 * when it can still be settled, else `quarantined` (W6).
 */
export async function observeWork(
  db: Database,
  holder: IncarnationId,
  { item, outcome }: Done,
  retention: string | null,
): Promise<string> {
  if (outcome.type === "returned") return "settled";
  const row = await runAlone(db, "worker", sql.observeWork, {
    deployment_epoch: db.deploymentEpoch,
    tenant: item.tenant,
    work: item.id,
    holder,
    epoch: item.epoch,
    attempt: item.attempt,
    outcome: outcome.type,
    result:
      outcome.type === "succeeded" && outcome.result !== "" ? (JSON.parse(outcome.result) as unknown) : null,
    code: outcome.type === "failed" ? outcome.code : null,
    message: outcome.type === "failed" ? outcome.message : null,
    retention,
  });
  return row.what;
}

/** The permit of a claim whose turn's answer was lost: what the row says of it now. */
export function readPermit(db: Database, { tenant, id }: Pick<Claimed, "tenant" | "id">) {
  return transition(
    { ...db, committed: () => undefined },
    { role: "worker", tenant, name: "readPermit" },
    (tx) => tx.run(sql.readPermit, { work: id }),
  );
}

export function readUnknown(db: Database, holder: IncarnationId, { tenant, id, epoch }: Claimed) {
  return transition(
    { ...db, committed: () => undefined },
    { role: "worker", tenant, name: "readUnknown" },
    (tx) => tx.run(sql.readUnknown, { work: id, holder, epoch }),
  );
}

/** What a reconciler found, under the lease of its item. Gives what the item is then. */
export async function settleReconciled(
  db: Database,
  holder: IncarnationId,
  { tenant, id, epoch }: Claimed,
  verdict: Verdict<unknown>,
  pauseUs: Microseconds,
): Promise<string> {
  return transition(db, { role: "worker", tenant, name: "settleReconciled" }, async (tx) => {
    if (verdict === "unknown") {
      await tx.run(sql.deferReconciliation, { work: id, holder, epoch, pause_us: pauseUs });
      return "reconciling";
    }
    const { state } = await tx.run(proveWork, {
      tenant,
      work: id,
      verdict: verdict.applied ? "applied" : "not_applied",
      source: "reconciler",
      by: holder,
      note: null,
      result: verdict.applied ? (verdict.result ?? null) : null,
      epoch,
    });
    return state;
  });
}

/** The lease of an admitted attempt, as the lease keeper renews it: by the monotonic clock alone. */
export function leaseOf(item: Claimed, holder: IncarnationId): Omit<HeldLease, "expiresAt"> {
  return {
    tenant: item.tenant,
    kind: "work",
    resource: item.id,
    holder,
    epoch: item.epoch,
    heldUntilMs: item.heldUntilMs,
  };
}
