import { canonicalDigest } from "../core/canonical.ts";
import { appendChange } from "../core/change.sql.ts";
import { assertKindAdmits } from "../core/drain.store.ts";
import { HoldfastError } from "../core/errors.ts";
import { uuidv7 } from "../core/ids.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import { formatInstant, type Instant } from "../core/time.ts";
import { type ActivationView, activationLimits } from "../wire/activation.ts";
import type { RequiredAction } from "../wire/agent-protocol.ts";
import * as sql from "./activation.sql.ts";
import { type ActivationState, decideCancellation } from "./activation.ts";
import { assertAdmits } from "./session.ts";
import { intentOf, lockSession, makeDue, type SessionRow, sessionKind } from "./session-row.store.ts";

/** An activation as the statements of `activation.sql` give it. */
export type ActivationRow = sql.ReadActivationRow;

/** The lease under which what an activation leaves outside is removed, beside what its session does next. */
export const activationKind = "activation";
const queueFullRetrySeconds = 5;

/**
 * Puts a stimulus into the session's line, once by its id (S2): the same again gives the activation that is there,
 * also when it has ended and when the session takes no more; with other content it is a `conflict`.
 */
export async function admitActivation(
  tx: Transaction,
  admit: {
    readonly session: string;
    /** The client's; a new one when left out. */
    readonly id?: string;
    readonly stimulus: Readonly<Record<string, unknown>>;
    /** How many of a session may be unfinished. */
    readonly queueMax: number;
  },
): Promise<{ readonly activation: ActivationRow; readonly admitted: boolean }> {
  const { session, stimulus, id = uuidv7() } = admit;
  const bytes = Buffer.byteLength(JSON.stringify(stimulus));
  if (bytes > activationLimits.stimulusBytesMax) {
    const message = `a stimulus takes at most ${activationLimits.stimulusBytesMax} bytes of JSON, this one ${bytes}`;
    throw new HoldfastError("payload_too_large", message);
  }
  const digest = canonicalDigest(stimulus);
  const row = await lockSession(tx, session);
  const there = await tx.run(sql.readActivation, { session, activation: id });
  if (there !== undefined) {
    if (there.content_digest === digest) return { activation: there, admitted: false };
    throw new HoldfastError("conflict", `activation ${id} was admitted with other content`);
  }
  await assertKindAdmits(tx, "activations");
  assertAdmits(intentOf(row));
  const { unfinished } = await tx.run(sql.countUnfinished, { session, queue_max: BigInt(admit.queueMax) });
  if (unfinished >= admit.queueMax) {
    throw new HoldfastError("queue_full", `${admit.queueMax} activations of the session wait already`, {
      retryAfterSeconds: queueFullRetrySeconds,
    });
  }
  const { ordinal } = await tx.run(sql.takePlace, { session });
  await tx.run(sql.insertActivation, {
    session,
    activation: id,
    uid: uuidv7(),
    ordinal,
    content: stimulus,
    digest,
    now: tx.now,
  });
  await makeDue(tx, sessionKind, session, row.runtime);
  const activation = await getActivation(tx, session, id);
  await recordChange(tx, activation, "activation.admitted");
  return { activation, admitted: true };
}

export async function getActivation(
  tx: Transaction,
  session: string,
  activation: string,
): Promise<ActivationRow> {
  return found(await tx.run(sql.readActivation, { session, activation }));
}

/** In the order of admission, after `after`; or backwards, the newest first, before `before`. */
export function listActivations(
  tx: Transaction,
  session: string,
  page: {
    readonly after?: bigint;
    readonly before?: bigint;
    readonly backwards?: boolean;
    readonly states?: readonly ActivationState[];
    readonly limit: number;
  },
): Promise<ActivationRow[]> {
  return tx.run(sql.listActivations, {
    session,
    after: page.after ?? null,
    before: page.before ?? null,
    backwards: page.backwards ?? false,
    states: [...(page.states ?? [])],
    limit: BigInt(page.limit),
  });
}

/**
 * Persisted before anything is stopped, and never taken back (G8). One of which nothing runs is cancelled here and
 * now; another by the controller, unless its checkpoint is committed first.
 */
export async function cancelActivation(
  tx: Transaction,
  request: { readonly session: string; readonly activation: string; readonly reason: string },
): Promise<ActivationRow> {
  const session = await lockSession(tx, request.session);
  return cancel(tx, session, request.activation, request.reason);
}

/** All that have not ended, with the session locked: in its order, so that what is at work comes first. */
export async function cancelUnfinished(tx: Transaction, session: SessionRow, reason: string): Promise<void> {
  const unfinished = await tx.run(sql.listUnfinished, { session: session.session_id });
  for (const { activation_id } of unfinished) await cancel(tx, session, activation_id, reason);
}

async function cancel(
  tx: Transaction,
  { session_id: session, runtime }: SessionRow,
  activation: string,
  reason: string,
): Promise<ActivationRow> {
  const row = found(await tx.run(sql.lockActivation, { session, activation }));
  const { activation_uid: uid } = row;
  const state = row.state as ActivationState; // a check constraint holds the column to these
  const decision = decideCancellation({ state, cancelRequested: row.cancel_requested_at !== null });
  switch (decision) {
    case "cancel_now":
      await tx.run(sql.cancelIdleActivation, { uid, reason });
      await makeDue(tx, activationKind, uid, runtime);
      break;
    case "request":
      await tx.run(sql.requestCancellation, { uid, reason });
      break;
    case "nothing":
      return row;
    case "refuse":
      throw new HoldfastError("conflict", `the activation has ${state} already`);
    default:
      return decision satisfies never;
  }
  // What is at work is stopped now, and what waited behind it goes on.
  await makeDue(tx, sessionKind, session, runtime);
  const after = await getActivation(tx, session, activation);
  const operation = decision === "cancel_now" ? "activation.cancelled" : "activation.cancel_requested";
  await recordChange(tx, after, operation);
  return after;
}

/** Run one that waits again, whatever it waits for: somebody did it in another way. */
export async function retryActivation(
  tx: Transaction,
  request: { readonly session: string; readonly activation: string },
): Promise<ActivationRow> {
  const session = await lockSession(tx, request.session);
  const row = found(await tx.run(sql.lockActivation, request));
  if (row.state !== "waiting") {
    throw new HoldfastError("conflict", `the activation is ${row.state}: it waits for nothing`);
  }
  return resume(tx, session, row.activation_id);
}

/** With the session locked: the one that waits runs again when what it needs is this. */
export async function resumeWaiting(
  tx: Transaction,
  session: SessionRow,
  isDone: (action: RequiredAction) => boolean,
): Promise<void> {
  const waiting = await tx.run(sql.readWaiting, { session: session.session_id });
  if (waiting === undefined) return;
  // The protocol's reader made it, and it was stored as it was.
  if (isDone(waiting.required_action as RequiredAction)) await resume(tx, session, waiting.activation_id);
}

async function resume(
  tx: Transaction,
  { session_id: session, runtime }: SessionRow,
  activation: string,
): Promise<ActivationRow> {
  const row = found(await tx.run(sql.lockActivation, { session, activation }));
  await tx.run(sql.resumeActivation, { uid: row.activation_uid });
  await makeDue(tx, sessionKind, session, runtime);
  const after = await getActivation(tx, session, activation);
  await recordChange(tx, after, "activation.resumed");
  return after;
}

function found<Row>(row: Row | undefined): Row {
  if (row === undefined) throw new HoldfastError("not_found", "there is no such activation");
  return row;
}

async function recordChange(tx: Transaction, row: ActivationRow, operation: string): Promise<void> {
  const { stimulus: _stimulus, reply: _reply, ...body } = activationView(row);
  await tx.run(appendChange, {
    kind: "activation",
    resource: row.activation_uid,
    root: row.session_id,
    version: row.resource_version,
    operation,
    // What was said can be larger than a change.
    body,
  });
}

const timeOrNull = (at: Instant | null) => (at === null ? null : formatInstant(at));

export function activationView(row: ActivationRow): ActivationView {
  const failure = (code: string | null, message: string | null) =>
    code === null ? null : { code, message: message ?? "" };
  return {
    id: row.activation_id,
    session_id: row.session_id,
    ordinal: Number(row.ordinal),
    state: row.state as ActivationState,
    stimulus: row.content as ActivationView["stimulus"],
    stimulus_digest: row.content_digest,
    resource_version: String(row.resource_version),
    runs: row.tries,
    base_revision: row.base_revision === null ? null : Number(row.base_revision),
    agent_version: row.agent_version,
    // Of a run that goes on, this is what was said last and may not come true.
    reply: row.state === "committed" ? (row.reply as ActivationView["reply"]) : null,
    required_action: row.state === "waiting" ? (row.required_action as RequiredAction) : null,
    revision: row.revision === null ? null : Number(row.revision),
    failure: failure(row.failure_code, row.failure_message),
    last_failure: failure(row.last_failure_code, row.last_failure_message),
    admitted_at: formatInstant(row.admitted_at),
    started_at: timeOrNull(row.started_at),
    retry_at: timeOrNull(row.retry_at),
    finished_at: timeOrNull(row.finished_at),
    cancel_requested_at: timeOrNull(row.cancel_requested_at),
    cancel_reason: row.cancel_reason,
  };
}
