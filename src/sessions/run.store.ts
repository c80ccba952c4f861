import { HoldfastError } from "../core/errors.ts";
import { brandId, type SandboxId, type TenantId, uuidv7 } from "../core/ids.ts";
import { deleteLease, returnLease, underLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { type Database, type Transaction, view } from "../core/postgres/transition.ts";
import { type Instant, instant, seconds } from "../core/time.ts";
import { type SandboxRecords, sandboxRecords } from "../sandboxes/record.store.ts";
import { listSandboxes, planSandbox } from "../sandboxes/sandbox.store.ts";
import { type Sandbox, sandboxName } from "../sandboxes/sandbox.ts";
import type { AgentSpec } from "../wire/agent.ts";
import type { RequiredAction } from "../wire/agent-protocol.ts";
import { activationKind } from "./activation.store.ts";
import { type ActivationState, type Failure, runStep, type SessionSnapshot } from "./activation.ts";
import { getTemplate } from "./agent.store.ts";
import { runPlanOf } from "./agent.ts";
import { scheduleRemoval } from "./retention.store.ts";
import * as sql from "./run.sql.ts";
import { countRuns, hastenNext, lockRoom, lockSession as lockSessionRow } from "./session.sql.ts";
import { observeSession } from "./session.store.ts";
import type { ObservedState } from "./session.ts";
import { getSession, intentOf, makeDue, type SessionRow } from "./session-row.store.ts";

type Activation = NonNullable<SessionSnapshot["activation"]>;

const ownerOf = (uid: string) => ({ kind: "activation", id: uid }) as const;

/** Everything that decides what happens next with a session, in one consistent look. */
export function readSessionSnapshot(
  db: Database,
  tenant: TenantId,
  session: string,
): Promise<SessionSnapshot> {
  const seenAtMs = monotonicMs();
  return view(db, { role: "controller", tenant, name: "readSession" }, async (tx) => {
    const row = await getSession(tx, session);
    const work = await tx.run(sql.readAtWork, { session });
    return {
      now: tx.now,
      seenAtMs,
      tenant,
      session,
      desired: intentOf(row),
      generation: row.generation,
      head: row.head_revision,
      activation:
        work === undefined
          ? null
          : activationOf(work, await listSandboxes(tx, tenant, ownerOf(work.activation_uid))),
    };
  });
}

function activationOf(row: sql.ReadAtWorkRow, sandboxes: readonly Sandbox[]): Activation {
  const plan = runPlanOf(row.template as AgentSpec); // validated by the schema before it was stored
  const { candidate_sha256: sha256, output_fault_code: code } = row;
  return {
    uid: row.activation_uid,
    id: row.activation_id,
    // A check constraint holds the column to these.
    state: row.state as ActivationState,
    cancelRequested: row.cancel_requested,
    retryAt: row.retry_at,
    tries: row.tries,
    failures: row.failures,
    triesMax: plan.tries,
    grace: plan.grace,
    destinations: plan.destinations,
    sandboxes,
    output: {
      read: row.output_read,
      done: row.output_done,
      fault: code === null ? null : { code, message: row.output_fault ?? "" },
    },
    proposal:
      row.proposed_by === null
        ? null
        : {
            candidate: sha256 === null ? null : { sha256, verified: row.candidate_verified },
            // The protocol's reader made it.
            requiredAction: row.required_action as RequiredAction | null,
          },
  };
}

/** Move the activation's version and append what happened, for whoever watches its session. */
export async function recordEvent(
  tx: Transaction,
  uid: string,
  operation: string,
  details: Readonly<Record<string, unknown>>,
): Promise<void> {
  const recorded = await tx.run(sql.recordEvent, { uid, operation, details });
  if (recorded !== 1) throw new HoldfastError("not_found", "there is no such activation");
}

/** Each step of the sandboxes of an activation, under the lease of its session, or of itself after its end. */
export function activationRecords(db: Database, lease: HeldLease, uid: () => string): SandboxRecords {
  return sandboxRecords({
    db,
    lease,
    async lockActive(tx) {
      const row = await tx.run(sql.lockRun, { uid: uid() });
      if (row?.state !== "running") throw new HoldfastError("conflict", "the activation is not running");
    },
    async lock(tx) {
      await tx.run(sql.lockRun, { uid: uid() });
    },
    event: (tx, operation, sandbox, details) =>
      recordEvent(tx, uid(), operation, { run: sandbox.step, sandbox: sandbox.name, ...details }),
  });
}

/**
 * What a session without room waits, unless it is woken before: by the end of a run of its tenant, or by the start of
 * one that leaves room. Only what was woken and then cancelled can keep the others waiting for so long.
 */
const roomAgainUs = seconds(60);

/**
 * Begins a run from the present head with the template that is wanted now (G10), when the tenant has room: number,
 * base and the name of its sandbox are committed before anything exists outside. `no_room` gives the lease back, to be
 * due when a run of the tenant ends; `changed`: look again.
 */
export function startRun(
  db: Database,
  lease: HeldLease,
  start: { readonly activation: Activation; readonly installation: string; readonly runsMax: number },
): Promise<"started" | "no_room" | "changed"> {
  const { activation, installation } = start;
  return underLease(db, lease, "startRun", async (tx) => {
    const session = await lockRow(tx, lease.resource);
    const row = await tx.run(sql.lockRun, { uid: activation.uid });
    if (row?.state !== "queued" || row.cancel_requested || intentOf(session) === "suspended")
      return "changed";
    await tx.run(lockRoom, {});
    const { running } = await tx.run(countRuns, { runs_max: BigInt(start.runsMax) });
    if (running >= start.runsMax) {
      await returnLease(tx, lease, instant(tx.now + roomAgainUs));
      return "no_room";
    }
    const { agent_version: version, head_revision: head } = session;
    const { tries } = await tx.run(sql.startRun, { uid: activation.uid, head, version });
    await recordEvent(tx, activation.uid, "activation.started", {
      run: tries,
      base_revision: Number(head),
      agent_version: version,
    });
    const run = { uid: activation.uid, id: activation.id, tries, ordinal: 1, installation };
    await planRunSandbox(tx, lease, session, run, null);
    await observeSession(tx, session, { generation: session.generation, state: "running" });
    if (running + 1 < start.runsMax) await tx.run(hastenNext, { now: tx.now });
    return "started";
  });
}

interface Run {
  readonly uid: string;
  readonly id: string;
  readonly tries: number;
  readonly ordinal: number;
  readonly installation: string;
}

/** Another sandbox for a run whose sandboxes never started, within the same deadline. */
export function planAgain(
  db: Database,
  lease: HeldLease,
  plan: { readonly activation: Activation; readonly ordinal: number; readonly installation: string },
): Promise<void> {
  const { activation, ordinal, installation } = plan;
  return underLease(db, lease, "planAgain", async (tx) => {
    const session = await lockRow(tx, lease.resource);
    const row = await tx.run(sql.lockRun, { uid: activation.uid });
    if (row?.state !== "running") throw new HoldfastError("conflict", "the activation is not running");
    const run = { uid: activation.uid, id: activation.id, tries: row.tries, ordinal, installation };
    await planRunSandbox(tx, lease, session, run, activation.sandboxes.at(-1)?.deadline ?? null);
  });
}

async function planRunSandbox(
  tx: Transaction,
  lease: HeldLease,
  session: SessionRow,
  run: Run,
  deadline: Instant | null,
): Promise<void> {
  const { agent_version } = (await tx.run(sql.readRunTemplate, { uid: run.uid })) ?? { agent_version: null };
  const plan = runPlanOf(await getTemplate(tx, session.agent_id, agent_version ?? session.agent_version));
  const owner = ownerOf(run.uid);
  const step = runStep(run.tries);
  const { ordinal, installation } = run;
  const name = sandboxName({ installation, tenant: lease.tenant, owner, step, ordinal });
  await planSandbox(tx, {
    id: brandId<SandboxId>(uuidv7()),
    owner,
    step,
    ordinal,
    name,
    runtime: session.runtime,
    spec: {
      ...plan.sandbox,
      env: {
        ...plan.sandbox.env,
        HOLDFAST_SESSION: session.session_id,
        HOLDFAST_ACTIVATION: run.id,
        HOLDFAST_RUN: String(run.tries),
      },
    },
    deadline: deadline ?? instant(tx.now + plan.timeout),
  });
  await recordEvent(tx, run.uid, "sandbox.planned", { run: step, sandbox: name });
}

async function lockRow(tx: Transaction, session: string): Promise<SessionRow> {
  const row = await tx.run(lockSessionRow, { session });
  if (row === undefined) throw new HoldfastError("not_found", "there is no such session");
  return row;
}

export type Move =
  | { readonly to: "committing" }
  | { readonly to: "waiting" }
  | { readonly to: "queued"; readonly failure: Failure; readonly at: Instant }
  | { readonly to: "failed"; readonly failure: Failure }
  | { readonly to: "cancelled" };

const messageLengthMax = 1000;
const operations = {
  committing: "activation.committing",
  waiting: "activation.waiting",
  queued: "activation.retried",
  failed: "activation.failed",
  cancelled: "activation.cancelled",
} as const satisfies Record<Move["to"], string>;

/**
 * Where an activation goes without a checkpoint. A cancellation that came meanwhile wins over whatever else (G8): what
 * was to be tried again, or had failed, is cancelled. The database refuses it while anything of it is not proven
 * stopped. Gives where it went, or null when it had moved already.
 */
export function moveActivation(
  db: Database,
  lease: HeldLease,
  from: Pick<Activation, "uid" | "state">,
  move: Move,
): Promise<Move["to"] | null> {
  return underLease(db, lease, "moveActivation", async (tx) => {
    const session = await lockRow(tx, lease.resource);
    const { uid } = from;
    const row = await tx.run(sql.lockRun, { uid });
    if (row?.state !== from.state) return null;
    const actual: Move = row.cancel_requested && move.to !== "committing" ? { to: "cancelled" } : move;
    const failure = "failure" in actual ? actual.failure : null;
    const named = {
      failure_code: failure?.code ?? null,
      failure_message: failure?.message.slice(0, messageLengthMax) ?? null,
    };
    const ends = actual.to === "failed" || actual.to === "cancelled";
    if (ends) await tx.run(sql.endActivation, { uid, state: actual.to, ...named });
    else {
      const retry_at = actual.to === "queued" ? actual.at : null;
      await tx.run(sql.moveActivation, { uid, state: actual.to, retry_at, ...named });
    }
    if (actual.to !== "committing") await giveRoom(tx);
    if (ends || actual.to === "waiting") await makeDue(tx, activationKind, uid, session.runtime);
    await recordEvent(tx, uid, operations[actual.to], failure === null ? {} : { failure });
    return actual.to;
  });
}

/** A run ended: one of the tenant's sessions that found no room may try again at once. */
export async function giveRoom(tx: Transaction): Promise<void> {
  await tx.run(lockRoom, {});
  await tx.run(hastenNext, { now: tx.now });
}

/**
 * Nothing is to be done now: records what is observed, and gives the lease up, so that an idle session holds nothing.
 * False: something came between the look and this.
 */
export function rest(
  db: Database,
  lease: HeldLease,
  seen: SessionSnapshot,
  step: { readonly observed: ObservedState; readonly until: Instant | null },
): Promise<boolean> {
  return underLease(db, lease, "rest", async (tx) => {
    const session = await lockRow(tx, lease.resource);
    const work = await tx.run(sql.readAtWork, { session: lease.resource });
    const { activation } = seen;
    const same =
      session.generation === seen.generation &&
      work?.activation_uid === activation?.uid &&
      work?.state === activation?.state &&
      work?.cancel_requested === activation?.cancelRequested;
    if (!same) return false;
    await observeSession(tx, session, { generation: seen.generation, state: step.observed });
    if (step.observed === "deleted") await scheduleRemoval(tx, lease.resource);
    if (step.until === null) await deleteLease(tx, lease);
    else await returnLease(tx, lease, step.until);
    return true;
  });
}
