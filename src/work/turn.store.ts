import { brandId, type IncarnationId, type TenantId } from "../core/ids.ts";
import type { HeldLease } from "../core/lease.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { isRetryable } from "../core/postgres/sqlstate.ts";
import { type Database, runAlone, transition } from "../core/postgres/transition.ts";
import { type Microseconds, microseconds, toMilliseconds } from "../core/time.ts";
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
  /** Where its row stood when it was last seen: a hint, which saves looking for it. */
  readonly row: string;
  /** On this machine's monotonic clock, and never later than the database's. */
  readonly heldUntilMs: number;
}

/** An attempt that was admitted: its code may run, once, by this process. */
export interface Permitted extends Claimed {
  readonly attempt: number;
  readonly input: unknown;
  readonly providerKey: string | null;
  readonly circuitKey: string | null;
  /** As the server writes it: most code never asks. */
  readonly acceptedAt: string;
  readonly deadline: string | null;
  /** Started later than this it could begin after its cutoff or its lease: it is given back instead. */
  readonly startByMs: number;
}

export type Outcome =
  | { readonly type: "succeeded"; readonly result: string }
  | {
      readonly type: "failed";
      readonly code: string;
      readonly message: string;
      /** No other attempt is tried. */
      readonly final: boolean;
      /** It does not say whether the effect has happened, which has to be known (W11): not to be settled as a failure. */
      readonly unknown?: boolean;
    }
  /** Its code was never called. */
  | { readonly type: "returned" };

export interface Done {
  readonly item: Claimed & { readonly attempt: number; readonly circuitKey: string | null };
  readonly outcome: Outcome;
}

/** What a turn may take beside what was claimed: up to `limit` due items of these lines. */
export interface Take {
  readonly lines: readonly Cursor[];
  readonly limit: number;
  readonly leaseUs: Microseconds;
}

export interface Turn {
  /** Both what was asked for and what was taken. */
  readonly permitted: readonly Permitted[];
  /** Where the next turn may go on taking. */
  readonly cursors: readonly Cursor[];
  /** Lines that were taken to their end, and where it was. */
  readonly emptied: readonly Cursor[];
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
  /** Where a turn may go on: lines of which there is more. */
  readonly cursors: readonly Cursor[];
  /** Lines that were taken to their end, and where it was. */
  readonly emptied: readonly Cursor[];
}

/** Lane, priority, tenant, and the due time and id of the last item that was looked at. */
export type Cursor = readonly [lane: string, priority: number, tenant: string, due: string, id: string];

// What the two functions answer, as migrations/0014 says: before it, they said nothing of emptied lines.
interface ClaimAnswer {
  readonly i: readonly (readonly [
    tenant: string,
    id: string,
    lane: string,
    epoch: number,
    what: string,
    row: string,
  ])[];
  readonly c: readonly Cursor[];
  readonly q?: readonly Cursor[];
}
type PermitAnswer = readonly [
  attempt: number,
  leftMs: number,
  leaseMs: number,
  acceptedAt: string,
  row: string,
  input: unknown,
  providerKey?: string | null,
  circuitKey?: string | null,
  deadline?: string | null,
];
interface TurnAnswer {
  readonly p: readonly (readonly [place: number, ...PermitAnswer])[];
  readonly t: readonly (readonly [line: number, id: string, epoch: number, ...PermitAnswer])[];
  readonly c: readonly (readonly [line: number, due: string, id: string])[];
  readonly q?: readonly (readonly [line: number, due: string, id: string])[];
  readonly n: readonly (readonly [place: number, what: string])[];
  readonly s: readonly number[];
  readonly o: readonly string[];
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
  const { answer } = await runAlone(db, "dispatcher", sql.claimWork, {
    deployment_epoch: db.deploymentEpoch,
    holder: claim.holder,
    lanes: claim.lanes,
    limit: claim.limit,
    lease_us: claim.leaseUs,
  });
  const { i: items, c: cursors, q: emptied = [] } = JSON.parse(answer) as ClaimAnswer;
  const [claimed, lost, toReconcile]: [Claimed[], Claimed[], Claimed[]] = [[], [], []];
  for (const [tenant, id, lane, epoch, what, row] of items) {
    const item = { tenant: brandId<TenantId>(tenant), id, lane, epoch: BigInt(epoch), row, heldUntilMs };
    if (what === "claimed") claimed.push(item);
    else (what === "recover" ? lost : toReconcile).push(item);
  }
  return { claimed, lost, toReconcile, cursors, emptied };
}

function columns(cursors: readonly Cursor[]) {
  return {
    lanes: cursors.map(([lane]) => lane),
    priorities: cursors.map(([, priority]) => priority),
    tenants: cursors.map(([, , tenant]) => tenant),
    dues: cursors.map(([, , , due]) => due),
    works: cursors.map(([, , , , id]) => id),
  };
}

/**
 * One turn: settles what is done and permits what comes next, in one statement and one commit. It throws as a
 * whole, also for one item that the database refuses.
 */
export async function turnWork(
  db: Database,
  holder: IncarnationId,
  done: readonly Done[],
  next: readonly Claimed[],
  take: Take | null = null,
): Promise<Turn> {
  const tenants = new Set<string>();
  const succeeded: Done[] = [];
  const others: Done[] = [];
  for (const one of done) {
    tenants.add(one.item.tenant);
    (one.outcome.type === "succeeded" ? succeeded : others).push(one);
  }
  for (const item of next) tenants.add(item.tenant);
  const lines = columns(take?.lines ?? []);
  for (const tenant of lines.tenants) tenants.add(tenant);
  const results = succeeded.map(({ outcome }) => (outcome.type === "succeeded" ? outcome.result : ""));
  const circuits = succeeded.map(({ item }) => item.circuitKey ?? "");
  const unlessEmpty = (texts: string[]) => (texts.some((text) => text !== "") ? texts : []);
  const params = {
    deployment_epoch: db.deploymentEpoch,
    holder,
    tenants: [...tenants],
    done_rows: succeeded.map(({ item }) => item.row),
    done_tenants: succeeded.map(({ item }) => item.tenant),
    done_works: succeeded.map(({ item }) => item.id),
    done_epochs: succeeded.map(({ item }) => item.epoch),
    done_attempts: succeeded.map(({ item }) => item.attempt),
    done_results: unlessEmpty(results),
    done_circuits: unlessEmpty(circuits),
    other_tenants: others.map(({ item }) => item.tenant),
    other_works: others.map(({ item }) => item.id),
    other_epochs: others.map(({ item }) => item.epoch),
    other_attempts: others.map(({ item }) => item.attempt),
    other_outcomes: others.map(({ outcome }) =>
      outcome.type === "failed" && outcome.final ? "failed_for_good" : outcome.type,
    ),
    other_codes: others.map(({ outcome }) => (outcome.type === "failed" ? outcome.code : "")),
    other_messages: others.map(({ outcome }) => (outcome.type === "failed" ? outcome.message : "")),
    next_rows: next.map((item) => item.row),
    next_tenants: next.map((item) => item.tenant),
    next_works: next.map((item) => item.id),
    next_epochs: next.map((item) => item.epoch),
    take_lanes: lines.lanes,
    take_priorities: lines.priorities,
    take_tenants: lines.tenants,
    take_dues: lines.dues,
    take_works: lines.works,
    take_limit: take?.limit ?? 0,
    lease_us: take?.leaseUs ?? microseconds(0n),
  };
  for (let tries = 1; ; tries += 1) {
    const sentAtMs = monotonicMs();
    try {
      const { answer } = await runAlone(db, "worker", sql.turnWork, params);
      return told(JSON.parse(answer) as TurnAnswer, { succeeded, others, next, take, sentAtMs });
    } catch (error) {
      const cause: unknown = error instanceof Error && error.cause !== undefined ? error.cause : error;
      if (!isRetryable(cause) || tries === triesMax) throw error;
    }
  }
}

function told(
  answer: TurnAnswer,
  asked: {
    readonly succeeded: readonly Done[];
    readonly others: readonly Done[];
    readonly next: readonly Claimed[];
    readonly take: Take | null;
    readonly sentAtMs: number;
  },
): Turn {
  const { succeeded, others, next, take, sentAtMs } = asked;
  const lines = take?.lines ?? [];
  const permitted: Permitted[] = [];
  for (const [place, ...rest] of answer.p) {
    const item = next[place - 1];
    if (item !== undefined) permitted.push(permit(item, rest, sentAtMs));
  }
  for (const [place, id, epoch, ...rest] of answer.t) {
    const [lane = "", , tenant = ""] = lines[place - 1] ?? [];
    permitted.push(
      permit({ tenant: brandId<TenantId>(tenant), id, lane, epoch: BigInt(epoch) }, rest, sentAtMs),
    );
  }
  // When the limit was reached, the lines behind the last one are the first of their priority in the next turn.
  const cut = answer.t.length === take?.limit ? Math.max(0, ...answer.t.map(([place]) => place)) : 0;
  const at = ([place, due, id]: readonly [number, string, string]): Cursor[] => {
    const line = lines[place - 1];
    return line === undefined ? [] : [[line[0], line[1], line[2], due, id]];
  };
  const ended = answer.q ?? [];
  // The limit may have ended the last one, too.
  const more = [...answer.c, ...ended.filter(([place]) => place === cut)].flatMap(at);
  const emptied = ended.filter(([place]) => place !== cut).flatMap(at);
  const behind = cut === 0 ? [] : lines.slice(cut);
  const cursors = [...behind, ...more].toSorted(([, a], [, b]) => a - b);
  const passed = answer.n.flatMap(([place, what]) => {
    const item = next[place - 1];
    return item === undefined ? [] : [{ item, what }];
  });
  const unmatched = answer.s.flatMap((place) => succeeded[place - 1] ?? []);
  const settled: { done: Done; what: string }[] = [];
  for (const [place, one] of others.entries()) {
    const what = answer.o[place] ?? "unmatched";
    if (what === "unmatched") unmatched.push(one);
    else settled.push({ done: one, what });
  }
  return { permitted, cursors, emptied, passed, unmatched, settled };
}

/** Times are rounded down: this side never believes in more time than the database does. */
function permit(
  { tenant, id, lane, epoch }: Pick<Claimed, "tenant" | "id" | "lane" | "epoch">,
  [attempt, leftMs, leaseMs, acceptedAt, row, input, providerKey, circuitKey, deadline]: PermitAnswer,
  sentAtMs: number,
): Permitted {
  return {
    tenant,
    id,
    lane,
    epoch,
    row,
    heldUntilMs: sentAtMs + leaseMs,
    attempt,
    input,
    providerKey: providerKey ?? null,
    circuitKey: circuitKey ?? null,
    acceptedAt,
    deadline: deadline ?? null,
    startByMs: sentAtMs + leftMs,
  };
}

/** What a turn took whose answer was lost, without what is known by its epoch. */
export async function readTaken(
  db: Database,
  holder: IncarnationId,
  take: Take,
  known: readonly bigint[],
): Promise<Done["item"][]> {
  const lines = columns(take.lines);
  const rows = await runAlone(db, "worker", sql.takenWork, {
    deployment_epoch: db.deploymentEpoch,
    holder,
    take_lanes: lines.lanes,
    take_priorities: lines.priorities,
    take_tenants: lines.tenants,
    take_dues: lines.dues,
    take_works: lines.works,
    take_limit: take.limit,
    known,
  });
  return rows.map((row) => ({
    tenant: brandId<TenantId>(row.tenant_id),
    id: row.work_id,
    lane: row.lane,
    epoch: row.epoch,
    row: row.place,
    attempt: row.attempt,
    heldUntilMs: monotonicMs(),
    circuitKey: null,
  }));
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
