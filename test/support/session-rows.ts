import { uuidv7 } from "../../src/core/ids.ts";
import type { RequiredAction } from "../../src/wire/agent-protocol.ts";
import type { Kernel } from "./kernel.ts";

/** What a controller leaves of an activation in the store, for tests of what is read from it and asked of it. */
export interface Turn {
  readonly session: string;
  /** Its client's id. */
  readonly activation: string;
}

async function uidOf(kernel: Kernel, { session, activation }: Turn): Promise<string> {
  const [row] = await kernel.ask<{ activation_uid: string }>(
    "select activation_uid from holdfast.activations where session_id = $1 and activation_id = $2",
    [session, activation],
  );
  if (row === undefined) throw new Error("there is no such activation");
  return row.activation_uid;
}

/** It has run once to its end; `committing`. Gives the sandbox that it ran in. */
async function run(kernel: Kernel, tenant: string, turn: Turn): Promise<{ uid: string; sandbox: string }> {
  const uid = await uidOf(kernel, turn);
  const sandbox = uuidv7();
  await kernel.ask(
    `insert into holdfast.sandbox_attempts (tenant_id, sandbox_id, owner_kind, owner_id, step, ordinal, name, runtime,
       spec, spec_digest, deadline, state, uid, held_at, released_at, stopped_at, stop_proof, outcome, exit_code, log_complete_at)
     values ($1, $2, 'activation', $3, 'run-1', 1, $4, 'process', '{}', repeat('0', 64), now() + interval '1 h', 'stopped', 'u',
       now(), now(), now(), 'shown', 'exited', 0, now())`,
    [tenant, sandbox, uid, `run-${sandbox}`],
  );
  await kernel.ask(
    `update holdfast.activations a set state = 'running', tries = 1, started_at = now(), agent_version = 1, proposed_by = $2,
       base_revision = (select head_revision from holdfast.cloud_sessions s where s.session_id = a.session_id)
     where activation_uid = $1`,
    [uid, sandbox],
  );
  await kernel.ask("update holdfast.activations set state = 'committing' where activation_uid = $1", [uid]);
  return { uid, sandbox };
}

/** It waits for somebody to do this. */
export async function insertWaiting(
  kernel: Kernel,
  tenant: string,
  turn: Turn,
  action: RequiredAction,
): Promise<void> {
  const { uid } = await run(kernel, tenant, turn);
  await kernel.ask(
    "update holdfast.activations set state = 'waiting', required_action = $2, resource_version = resource_version + 1 where activation_uid = $1",
    [uid, JSON.stringify(action)],
  );
}

/** It has committed the next revision with this reply and bundle. */
export async function insertCommit(
  kernel: Kernel,
  tenant: string,
  turn: Turn,
  commit: {
    readonly revision: number;
    readonly reply: object;
    readonly bundle: { readonly key: string; readonly bytes: number; readonly sha256: string } | null;
  },
): Promise<void> {
  const { uid, sandbox } = await run(kernel, tenant, turn);
  const { revision, reply, bundle } = commit;
  await kernel.ask(
    `with revision as (
       insert into holdfast.bundle_revisions (tenant_id, session_id, revision, blob_key, bytes, sha256)
       values ($1, $2, $3, $4, $5, $6))
     select`,
    [tenant, turn.session, revision, bundle?.key ?? null, bundle?.bytes ?? null, bundle?.sha256 ?? null],
  );
  await kernel.ask(
    `insert into holdfast.checkpoints (tenant_id, session_id, revision, activation_uid, sandbox_id, holder, epoch)
     values ($1, $2, $3, $4, $5, gen_random_uuid(), 1)`,
    [tenant, turn.session, revision, uid, sandbox],
  );
  await kernel.ask(
    "update holdfast.cloud_sessions set head_revision = $2, resource_version = resource_version + 1 where session_id = $1",
    [turn.session, revision],
  );
  await kernel.ask(`update holdfast.activations set reply = $2 where activation_uid = $1`, [
    uid,
    JSON.stringify(reply),
  ]);
  await kernel.ask(
    `update holdfast.activations set state = 'committed', revision = $2, finished_at = now(), resource_version = resource_version + 1
     where activation_uid = $1`,
    [uid, revision],
  );
}
