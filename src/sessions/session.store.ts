import { assertKindAdmits } from "../core/drain.store.ts";
import { HoldfastError } from "../core/errors.ts";
import { uuidv7 } from "../core/ids.ts";
import { type Labels, labelFaults, mergeLabels, refuseFaults, sameLabels } from "../core/labels.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import type { Instant } from "../core/time.ts";
import { cancelUnfinished, resumeWaiting } from "./activation.store.ts";
import { keepAgent } from "./agent.sql.ts";
import { getAgentByName, getTemplate, type Precondition } from "./agent.store.ts";
import { forkRevision, setFirstHead } from "./bundle-revision.sql.ts";
import * as sql from "./session.sql.ts";
import { mayObserve, type ObservedState, type SessionIntent } from "./session.ts";
import {
  findSession,
  getSession,
  intentOf,
  labelsOf,
  lockSession,
  makeDue,
  observedOf,
  recordSessionChange,
  type SessionRow,
  sessionKind,
} from "./session-row.store.ts";

export { getSession, type SessionRow, sessionView } from "./session-row.store.ts";

export const permissionsMax = 64;

export interface NewSession {
  /** The agent's name. */
  readonly agent: string;
  /** Of its template; the newest when left out. */
  readonly version?: number;
  readonly labels?: Labels;
  /** Begin as a copy of a committed revision. */
  readonly from?: { readonly session: string; readonly revision: bigint };
}

export async function createSession(tx: Transaction, create: NewSession): Promise<SessionRow> {
  const labels = create.labels ?? {};
  refuseFaults(labelFaults(labels, "/labels"));
  await assertKindAdmits(tx, "sessions");
  const { agent_id: agent, version: newest, runtime } = await getAgentByName(tx, create.agent);
  if ((await tx.run(keepAgent, { agent })) === undefined) {
    throw new HoldfastError("not_found", "there is no such agent");
  }
  const version = create.version ?? newest;
  await getTemplate(tx, agent, version);
  const { from } = create;
  // Locked, so that what it remembers is not removed meanwhile.
  if (from !== undefined) await findSession(tx, from.session, sql.lockSession);
  const session = uuidv7();
  await tx.run(sql.insertSession, { session, agent, version, labels, now: tx.now });
  if (from !== undefined) {
    const source = { from_session: from.session, from_revision: from.revision };
    if ((await tx.run(forkRevision, { session, ...source })) === 0) {
      throw new HoldfastError("not_found", "the session has no such revision");
    }
    await tx.run(setFirstHead, { session });
  }
  await makeDue(tx, sessionKind, session, runtime);
  const row = await getSession(tx, session);
  await recordSessionChange(tx, row, "session.created");
  return row;
}

export interface SessionPosition {
  readonly createdAt: Instant;
  readonly session: string;
}

export interface SessionFilter {
  readonly agent: string | null;
  /** As observed; none means all. */
  readonly states: readonly ObservedState[];
  readonly labels: Labels;
}

/** Newest first, deleted ones left out; `next` is where the following page begins, null on the last one. */
export async function listSessions(
  tx: Transaction,
  filter: SessionFilter,
  page: { readonly after: SessionPosition | null; readonly limit: number },
): Promise<{ readonly sessions: readonly SessionRow[]; readonly next: SessionPosition | null }> {
  const rows = await tx.run(sql.listSessions, {
    agent: filter.agent,
    states: [...filter.states],
    labels: filter.labels,
    after_created_at: page.after?.createdAt ?? null,
    after_session: page.after?.session ?? null,
    limit: BigInt(page.limit + 1),
  });
  const sessions = rows.slice(0, page.limit);
  const last = sessions.at(-1);
  const more = rows.length > page.limit && last !== undefined;
  return { sessions, next: more ? { createdAt: last.created_at, session: last.session_id } : null };
}

export interface SessionChange {
  readonly labels?: Readonly<Record<string, string | null>>;
  readonly desired?: Exclude<SessionIntent, "deleted">;
  readonly version?: number;
}

/** Labels, what is wanted, and the template that runs from now on begin with. */
export async function patchSession(
  tx: Transaction,
  change: { readonly session: string; readonly patch: SessionChange; readonly precondition?: Precondition },
): Promise<SessionRow> {
  const { patch } = change;
  const row = await lockSession(tx, change.session);
  change.precondition?.(row.resource_version);
  assertNotDeleted(row);
  if (patch.version !== undefined) await getTemplate(tx, row.agent_id, patch.version);
  const labels = mergeLabels(labelsOf(row), patch.labels ?? {});
  refuseFaults(labelFaults(labels, "/labels"));
  return want(tx, row, {
    labels,
    version: patch.version ?? row.agent_version,
    desired: patch.desired ?? intentOf(row),
    permissions: row.permissions,
  });
}

/** Never taken back: what is at work is cancelled, what it remembers is removed, its rows stay (G8). */
export async function deleteSession(
  tx: Transaction,
  request: { readonly session: string; readonly reason: string; readonly precondition?: Precondition },
): Promise<SessionRow> {
  const row = await lockSession(tx, request.session);
  request.precondition?.(row.resource_version);
  if (row.desired_state === "deleted") return row;
  await cancelUnfinished(tx, row, request.reason);
  return want(tx, row, {
    labels: labelsOf(row),
    version: row.agent_version,
    desired: "deleted",
    permissions: row.permissions,
  });
}

/** For all activations from now on. One that waits for exactly this permission runs again. */
export async function grantPermission(
  tx: Transaction,
  grant: { readonly session: string; readonly permission: string; readonly precondition?: Precondition },
): Promise<SessionRow> {
  const { session, permission } = grant;
  const row = await lockSession(tx, session);
  grant.precondition?.(row.resource_version);
  assertNotDeleted(row);
  const granted = row.permissions.includes(permission);
  if (!granted && row.permissions.length >= permissionsMax) {
    throw new HoldfastError("conflict", `a session has at most ${permissionsMax} permissions`);
  }
  await resumeWaiting(
    tx,
    row,
    (action) => action.type === "grant_permission" && action.permission === permission,
  );
  return want(tx, row, {
    labels: labelsOf(row),
    version: row.agent_version,
    desired: intentOf(row),
    permissions: granted ? row.permissions : [...row.permissions, permission],
  });
}

interface Wanted {
  readonly labels: Labels;
  readonly version: number;
  readonly desired: SessionIntent;
  readonly permissions: readonly string[];
}

/** A change of what is wanted is a new generation, which a controller will observe; the same again changes nothing. */
async function want(tx: Transaction, row: SessionRow, wanted: Wanted): Promise<SessionRow> {
  const { session_id: session } = row;
  const renewed =
    wanted.version !== row.agent_version ||
    wanted.desired !== row.desired_state ||
    wanted.permissions.length !== row.permissions.length;
  if (!renewed && sameLabels(labelsOf(row), wanted.labels)) return row;
  const { labels, version, desired, permissions } = wanted;
  await tx.run(sql.setSession, {
    session,
    labels,
    version,
    desired,
    permissions: [...permissions],
    renewed,
  });
  if (renewed) await makeDue(tx, sessionKind, session, row.runtime);
  const changed = await getSession(tx, session);
  await recordSessionChange(
    tx,
    changed,
    desired === "deleted" ? "session.deletion_requested" : "session.patched",
  );
  return changed;
}

/** What the holder of its lease sees, with its row locked. False: it is no news, or too late. */
export async function observeSession(
  tx: Transaction,
  row: SessionRow,
  observation: { readonly generation: bigint; readonly state: ObservedState },
): Promise<boolean> {
  const present = {
    generation: row.generation,
    observedGeneration: row.observed_generation,
    observed: observedOf(row),
    desired: intentOf(row),
  };
  if (!mayObserve(present, observation)) return false;
  const { generation, state } = observation;
  if (generation === row.observed_generation && state === row.observed_state) return false;
  await tx.run(sql.observeSession, { session: row.session_id, generation, state });
  await recordSessionChange(tx, await getSession(tx, row.session_id), `session.${state}`);
  return true;
}

function assertNotDeleted(row: SessionRow): void {
  if (row.desired_state === "deleted") throw new HoldfastError("conflict", "the session is deleted");
}
