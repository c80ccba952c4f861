import { appendChange } from "../core/change.sql.ts";
import { HoldfastError } from "../core/errors.ts";
import type { Labels } from "../core/labels.ts";
import { lockLease } from "../core/lease.sql.ts";
import type { LeaseKind } from "../core/lease.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import { formatInstant } from "../core/time.ts";
import type { SessionView } from "../wire/session.ts";
import * as sql from "./session.sql.ts";
import type { ObservedState, SessionIntent } from "./session.ts";

/** A session as the statements of `session.sql` give it. */
export type SessionRow = sql.ReadSessionRow;

/** The lease of a session: its holder is the one controller that may drive it. */
export const sessionKind = "session";
export function getSession(tx: Transaction, session: string): Promise<SessionRow> {
  return findSession(tx, session, sql.readSession);
}

/** Its lease first, so that no controller decides anything about it meanwhile, and then its row. */
export async function lockSession(tx: Transaction, session: string): Promise<SessionRow> {
  await tx.run(lockLease, { kind: sessionKind, resource: session });
  return findSession(tx, session, sql.lockSession);
}

export async function findSession(
  tx: Transaction,
  session: string,
  look: typeof sql.readSession | typeof sql.lockSession,
): Promise<SessionRow> {
  const row = await tx.run(look, { session });
  if (row === undefined) throw new HoldfastError("not_found", "there is no such session");
  return row;
}

/** Something is to be done. Part of the transition that says what. */
export async function makeDue(
  tx: Transaction,
  kind: LeaseKind,
  resource: string,
  queue: string,
): Promise<void> {
  await tx.run(sql.makeDue, { kind, resource, queue, now: tx.now });
}

// A check constraint holds the columns to these; labels were validated when they were written.
export const intentOf = (row: Pick<SessionRow, "desired_state">) => row.desired_state as SessionIntent;
export const observedOf = (row: SessionRow) => row.observed_state as ObservedState;
export const labelsOf = (row: SessionRow) => row.labels as Labels;

/** The change of a transition that has just bumped the version. */
export async function recordSessionChange(
  tx: Transaction,
  row: SessionRow,
  operation: string,
): Promise<void> {
  await tx.run(appendChange, {
    kind: "session",
    resource: row.session_id,
    root: row.session_id,
    version: row.resource_version,
    operation,
    body: sessionView(row),
  });
}

export function sessionView(row: SessionRow): SessionView {
  return {
    id: row.session_id,
    agent_id: row.agent_id,
    agent: row.agent_name,
    agent_version: row.agent_version,
    labels: { ...labelsOf(row) },
    desired_state: intentOf(row),
    permissions: row.permissions,
    generation: String(row.generation),
    observed_generation: String(row.observed_generation),
    state: observedOf(row),
    head_revision: Number(row.head_revision),
    resource_version: String(row.resource_version),
    created_at: formatInstant(row.created_at),
    updated_at: formatInstant(row.updated_at),
    deleted_at: row.deleted_at === null ? null : formatInstant(row.deleted_at),
  };
}
