import { randomUUID } from "node:crypto";
import type { Client } from "pg";

const digest = "ab".repeat(32);

/**
 * Rows of one tenant in every table of schema 6, or of an earlier one, jobs in each of their states; written as a
 * superuser.
 */
export async function populateSchema6(
  client: Client,
  tenant: string,
  version = 6,
): Promise<{ sandbox: string; job: string }> {
  const principal = randomUUID();
  const sandbox = randomUUID();
  const running = randomUUID();
  await client.query("insert into holdfast.tenants (tenant_id) values ($1)", [tenant]);
  await client.query(
    "insert into holdfast.drains (kind, reason) values ('sessions', 'a rehearsal') on conflict do nothing",
  );
  if (version < 2) return { sandbox, job: running };
  await client.query(
    "insert into holdfast.principals (tenant_id, principal_id, name) values ($1, $2, 'ci')",
    [tenant, principal],
  );
  await client.query(
    `insert into holdfast.tokens (tenant_id, token_id, principal_id, token_hash, scopes, expires_at)
     values ($1, gen_random_uuid(), $2, sha256(convert_to($1, 'UTF8')), '{jobs:write}', now() + interval '1 day')`,
    [tenant, principal],
  );
  if (version < 3) return { sandbox, job: running };
  await client.query(
    `insert into holdfast.leases (tenant_id, kind, resource_id, due_at, wake_at)
     select $1, kind, gen_random_uuid(), now(), now()
     from unnest('{admission,execution,session,activation,sandbox,work,publication,retention}'::text[]) as kind`,
    [tenant],
  );
  if (version < 4) return { sandbox, job: running };
  await client.query(
    `insert into holdfast.commands (tenant_id, command_id, principal_id, idempotency_key, operation, target, fingerprint)
     values ($1, gen_random_uuid(), $2, 'key-1', 'submit', 'jobs', sha256('x'))`,
    [tenant, principal],
  );
  await client.query(
    `insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
     values ($1, 'job', $2, $2, 1, 'created', '{"state": "queued"}')`,
    [tenant, running],
  );
  await client.query(
    `insert into holdfast.publication_outbox (tenant_id, publication_id, source_kind, source_id, session_id, ordinal, destination, payload)
     values ($1, gen_random_uuid(), 'job', $2, $2, 1, 'hook', '{}')`,
    [tenant, running],
  );
  if (version < 5) return { sandbox, job: running };
  await client.query("insert into holdfast.job_specs (tenant_id, spec_digest, spec) values ($1, $2, $3)", [
    tenant,
    digest,
    '{"phases": [{"name": "compile", "unicode": "\\u00e9\\ud83d\\ude00"}], "number": 1e400}',
  ]);
  const insertJob = `insert into holdfast.jobs (tenant_id, job_id, name, spec_digest, state, labels, finished_at,
      cancel_requested_at, cancel_reason, failure_code, claimed_by, claimed_until, container_id, created_at)
    values ($1, $2, 'build', '${digest}', $3, '{"b": 1, "a": "\\n"}', $4, $5, $6, $7, $8, $9, $10,
      '2020-02-29T23:59:59.123456Z')`;
  const at = "2021-03-04T05:06:07.000001Z";
  const job = (id: string, state: string, facts: readonly (string | null)[]) =>
    client.query(insertJob, [tenant, id, state, ...facts]);
  await job(randomUUID(), "queued", [null, null, null, null, null, null, null]);
  await job(running, "running", [null, null, null, null, "host-1", "infinity", "c0ffee"]);
  await job(randomUUID(), "succeeded", [at, null, null, null, "host-1", at, "c0ffee"]);
  await job(randomUUID(), "failed", [at, null, null, "exit_1", "host-2", at, null]);
  await job(randomUUID(), "cancelled", [at, at, "not wanted", null, null, null, null]);
  await client.query(
    `insert into holdfast.artifacts (tenant_id, job_id, name, blob_key, bytes, sha256, media_type, manifest, retain_until)
     values ($1, $2, 'site.tar.gz', 'k', 1, '${digest}', 'application/gzip', '[]', now() + interval '1 day')`,
    [tenant, running],
  );
  if (version < 6) return { sandbox, job: running };
  await client.query(
    `insert into holdfast.sandbox_attempts (tenant_id, sandbox_id, owner_kind, owner_id, step, ordinal, name, runtime,
       spec, spec_digest, deadline)
     values ($1, $2, 'execution', gen_random_uuid(), 'compile', 1, 's-1', 'process', '{}', '${digest}', now() + interval '1 h')`,
    [tenant, sandbox],
  );
  await client.query(
    "insert into holdfast.log_chunks (tenant_id, sandbox_id, seq, stream, at, body) values ($1, $2, 1, 'stdout', now(), 'hello')",
    [tenant, sandbox],
  );
  await client.query(
    `insert into holdfast.log_archives (tenant_id, owner_kind, owner_id, blob_key, bytes, sha256, lines, archived_at, retain_until)
     values ($1, 'activation', $2, 'k', 1, $3, 1, now(), now() + interval '1 day')`,
    [tenant, randomUUID(), "0".repeat(64)],
  );
  await client.query(
    "insert into holdfast.swept_sandboxes (tenant_id, name, uid, runtime, epoch, reason) values ($1, 'hf-x', 'u', 'process', 1, 'unknown')",
    [tenant],
  );
  return { sandbox, job: running };
}

/** Rows of the same tenant in every table that 0007 adds. */
export async function populateSchema7(
  client: Client,
  tenant: string,
  { sandbox, job }: { readonly sandbox: string; readonly job: string },
): Promise<void> {
  const attempt = randomUUID();
  await client.query(
    `insert into holdfast.execution_attempts (tenant_id, job_id, ordinal, attempt_id, pool, plan, plan_digest, started_at, deadline)
     values ($1, $2, 1, $3, 'default', '{"sources": {}}', '${digest}', now(), now() + interval '1 h')`,
    [tenant, job, attempt],
  );
  await client.query(
    "insert into holdfast.execution_phases (tenant_id, attempt_id, number, name, kind) values ($1, $2, 1, 'compile', 'compile')",
    [tenant, attempt],
  );
  await client.query(
    `insert into holdfast.source_pins (tenant_id, attempt_id, source, commit_id, sandbox_id)
     values ($1, $2, 'engine', '${"a".repeat(40)}', $3)`,
    [tenant, attempt, sandbox],
  );
  await client.query(
    `insert into holdfast.attempt_objects (tenant_id, attempt_id, phase, name, blob_key, bytes, sha256, media_type, sandbox_id)
     values ($1, $2, 'compile', 'out.tar', 'k', 1, '${digest}', 'application/x-tar', $3)`,
    [tenant, attempt, sandbox],
  );
  await client.query(
    `update holdfast.slots set tenant_id = $1, attempt_id = $2, taken_at = now()
     where (pool, slot) = (select pool, slot from holdfast.slots where tenant_id is null limit 1)`,
    [tenant, attempt],
  );
}

/**
 * Rows of the same tenant in every table that 0008 to 0010 add, or those until an earlier one: a session with one turn
 * that was committed.
 */
export async function populateSchema10(client: Client, tenant: string, version = 10): Promise<void> {
  const [agent, session, activation, sandbox] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
  await client.query("begin");
  await client.query(
    "insert into holdfast.agents (tenant_id, agent_id, name, runtime) values ($1, $2, 'notes', 'process')",
    [tenant, agent],
  );
  await client.query(
    `insert into holdfast.agent_templates (tenant_id, agent_id, version, template, template_digest) values ($1, $2, 1, '{}', '${digest}')`,
    [tenant, agent],
  );
  await client.query(
    "insert into holdfast.cloud_sessions (tenant_id, session_id, agent_id, agent_version) values ($1, $2, $3, 1)",
    [tenant, session, agent],
  );
  if (version < 9) return void (await client.query("commit"));
  await client.query(
    `insert into holdfast.activations (tenant_id, session_id, activation_id, activation_uid, ordinal, content, content_digest)
     values ($1, $2, gen_random_uuid(), $3, 1, '{}', '${digest}')`,
    [tenant, session, activation],
  );
  await client.query(
    `insert into holdfast.sandbox_attempts (tenant_id, sandbox_id, owner_kind, owner_id, step, ordinal, name, runtime,
       spec, spec_digest, deadline, state, uid, held_at, released_at, stopped_at, stop_proof, outcome, exit_code, log_complete_at)
     values ($1, $2, 'activation', $3, 'run-1', 1, 's-2', 'process', '{}', '${digest}', now() + interval '1 h', 'stopped', 'u',
       now(), now(), now(), 'shown', 'exited', 0, now())`,
    [tenant, sandbox, activation],
  );
  if (version < 10) return void (await client.query("commit"));
  await client.query(
    `insert into holdfast.bundle_candidates (tenant_id, activation_uid, sandbox_id, sha256, bytes, blob_key, verified_at)
     values ($1, $2, $3, '${digest}', 1, 'b', now())`,
    [tenant, activation, sandbox],
  );
  await client.query(
    `update holdfast.activations set state = 'running', tries = 1, started_at = now(), base_revision = 0, agent_version = 1,
       proposed_by = $2, candidate_sha256 = '${digest}' where activation_uid = $1`,
    [activation, sandbox],
  );
  await client.query("update holdfast.activations set state = 'committing' where activation_uid = $1", [
    activation,
  ]);
  await client.query(
    `insert into holdfast.bundle_revisions (tenant_id, session_id, revision, blob_key, bytes, sha256)
     values ($1, $2, 1, 'b', 1, '${digest}')`,
    [tenant, session],
  );
  await client.query(
    `insert into holdfast.checkpoints (tenant_id, session_id, revision, activation_uid, sandbox_id, holder, epoch)
     values ($1, $2, 1, $3, $4, gen_random_uuid(), 1)`,
    [tenant, session, activation, sandbox],
  );
  await client.query("update holdfast.cloud_sessions set head_revision = 1 where session_id = $1", [session]);
  await client.query(
    "update holdfast.activations set state = 'committed', revision = 1, finished_at = now() where activation_uid = $1",
    [activation],
  );
  await client.query("commit");
}

const planned = "planned";
const legacy = "legacy";

/** Rows of the same tenant in every table that 0011 adds: legacy Work that waits, and some that has finished. */
export async function populateSchema11(client: Client, tenant: string): Promise<void> {
  const [waiting, suspended, finished, holder] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
  await client.query(
    `insert into holdfast.work_versions (name, version, digest, queue, safety, attempts_max, retry_initial_microseconds,
       retry_longest_microseconds, elapsed_max_microseconds, lease_max_microseconds)
     values ($1, '1', sha256('x'), 'default', 'manual_resolution', 5, 1000000, 60000000, 3600000000, 60000000)
     on conflict do nothing`,
    [legacy],
  );
  for (const [work, input] of [
    [waiting, '{"unicode": "\\u00e9\\ud83d\\ude00"}'],
    [suspended, '{"number": 1e400}'],
    [finished, "null"],
  ]) {
    await client.query(
      `insert into holdfast.work_items (tenant_id, work_id, version_number, idempotency_key, fingerprint_schema, fingerprint,
         input, queue, priority, accepted_at, due_at, attempts_max, retry_initial_microseconds, retry_longest_microseconds,
         elapsed_max_microseconds, lease_max_microseconds)
       select $1, $2, version_number, 'key-' || $2::uuid::text, 1, sha256('x'), $3, 'default', 2, '2020-02-29T23:59:59.123456Z',
         '2020-02-29T23:59:59.123457Z', 5, 1000000, 60000000, 3600000000, 60000000
       from holdfast.work_versions where name = $4`,
      [tenant, work, input, legacy],
    );
  }
  await client.query(
    `insert into holdfast.leases (tenant_id, kind, resource_id, queue, due_at, wake_at, work_state, attempt)
     values ($1, 'work', $2, '1.default', now(), now(), 'pending', 0),
       ($1, 'work', $3, '1.default', '9999-12-31T00:00:00Z', '9999-12-31T00:00:00Z', 'suspended', 1)`,
    [tenant, waiting, suspended],
  );
  await client.query(
    `insert into holdfast.work_attempts (tenant_id, work_id, attempt, holder, epoch, outcome, ended_at)
     values ($1, $2, 1, $3, 1, 'unknown', now())`,
    [tenant, suspended, holder],
  );
  await client.query(
    "insert into holdfast.work_suspensions (tenant_id, work_id, suspended_at, reason) values ($1, $2, now(), 'outcome_unknown')",
    [tenant, suspended],
  );
  await client.query(
    `insert into holdfast.work_cancels (tenant_id, work_id, requested_at, requested_by, reason) values ($1, $2, now(), 'ops', '')`,
    [tenant, suspended],
  );
  await client.query(
    `insert into holdfast.work_proofs (tenant_id, work_id, attempt, epoch, verdict, source, proven_by, proven_at)
     values ($1, $2, 1, 2, 'not_applied', 'operator', 'ops', now())`,
    [tenant, suspended],
  );
  await client.query(
    `insert into holdfast.work_history (tenant_id, work_id, state, attempts, finished_at, holder, epoch, result)
     values ($1, $2, 'succeeded', 1, now(), $3, 3, '{"paid": true}')`,
    [tenant, finished, holder],
  );
  await client.query(
    `insert into holdfast.work_observations (tenant_id, observation_id, work_id, attempt, holder, epoch, outcome, reason)
     values ($1, gen_random_uuid(), $2, 1, $3, 1, 'succeeded', 'finished')`,
    [tenant, finished, holder],
  );
  await client.query(
    "insert into holdfast.work_circuits (tenant_id, circuit_key, failures) values ($1, 'bank', 1)",
    [tenant],
  );
}

/** A planned item of the tenant with a deadline, as 0012 has them. Gives its id. */
export async function populateSchema12(client: Client, tenant: string): Promise<string> {
  const work = randomUUID();
  await client.query(
    `insert into holdfast.work_versions (name, version, digest, queue, safety, attempts_max, retry_initial_microseconds,
       retry_longest_microseconds, elapsed_max_microseconds, lease_max_microseconds, execution_policy_schema,
       attempt_plan_version, attempt_plan_offsets, maximum_circuit_microseconds)
     values ($1, '1', sha256('y'), 'default', 'idempotent', 2, 0, 0, 100000000, 60000000, 'work-execution-v1', 'p', '{0,1000000}', 2000000)
     on conflict do nothing`,
    [planned],
  );
  await client.query(
    `insert into holdfast.work_items (tenant_id, work_id, version_number, fingerprint_schema, fingerprint, input, queue, priority,
       accepted_at, due_at, attempts_max, retry_initial_microseconds, retry_longest_microseconds, elapsed_max_microseconds,
       lease_max_microseconds, execution_policy_schema, attempt_plan_version, attempt_plan_offsets, maximum_circuit_microseconds,
       execution_not_after, discovery_hint)
     select $1, $2, version_number, 2, sha256('y'), '{}', 'default', 2, '2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z', 2, 0, 0,
       100000000, 60000000, 'work-execution-v1', 'p', '{0,1000000}', 2000000, '2026-01-02T00:00:00Z', '1.default'
     from holdfast.work_versions where name = $3`,
    [tenant, work, planned],
  );
  return work;
}

/** Rows of the tenant in every table that a store at this version has. */
export async function populateAt(client: Client, tenant: string, version: number): Promise<void> {
  const made = await populateSchema6(client, tenant, Math.min(version, 6));
  if (version >= 7) await populateSchema7(client, tenant, made);
  if (version >= 8) await populateSchema10(client, tenant, Math.min(version, 10));
  if (version >= 11) await populateSchema11(client, tenant);
  if (version >= 12) await populateSchema12(client, tenant);
}

/** The same at the newest version. */
export function populateStore(client: Client, tenant: string): Promise<void> {
  return populateAt(client, tenant, 12);
}
