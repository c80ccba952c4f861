import { uuidv7 } from "../../src/core/ids.ts";
import type { Kernel } from "./kernel.ts";

/** An attempt as a controller would have left it in the store, for tests of what is read from it. */
export async function insertAttempt(
  kernel: Kernel,
  tenant: string,
  job: string,
  ordinal: number,
  phases: readonly string[],
  plan: object = { sources: {} },
): Promise<{ readonly attempt: string; readonly sandboxes: readonly string[] }> {
  const attempt = uuidv7();
  await kernel.ask("update holdfast.jobs set state = 'running' where job_id = $1 and state = 'queued'", [
    job,
  ]);
  await kernel.ask(
    `insert into holdfast.execution_attempts
       (tenant_id, job_id, ordinal, attempt_id, pool, plan, plan_digest, started_at, deadline)
     values ($1, $2, $3, $4, 'default', $6, $5, now(), now() + interval '1 hour')`,
    [tenant, job, ordinal, attempt, "0".repeat(64), JSON.stringify(plan)],
  );
  const sandboxes: string[] = [];
  for (const [index, phase] of phases.entries()) {
    const sandbox = uuidv7();
    await kernel.ask(
      `insert into holdfast.execution_phases (tenant_id, attempt_id, number, name, kind) values ($1, $2, $3, $4, 'compile')`,
      [tenant, attempt, index + 1, phase],
    );
    await kernel.ask(
      `insert into holdfast.sandbox_attempts (tenant_id, sandbox_id, owner_kind, owner_id, step, ordinal, name, runtime,
         spec, spec_digest, deadline, state, uid, outcome, stopped_at, stop_proof)
       values ($1, $2, 'execution', $3, $4, 1, $5, 'process', '{}', $6, now() + interval '1 hour', 'stopped', 'uid', 'exited', now(), 'test')`,
      [tenant, sandbox, attempt, phase, `sandbox-${sandbox}`, "0".repeat(64)],
    );
    sandboxes.push(sandbox);
  }
  return { attempt, sandboxes };
}

export async function insertChunk(
  kernel: Kernel,
  tenant: string,
  sandbox: string,
  seq: number,
  body: string,
): Promise<void> {
  await kernel.ask(
    "insert into holdfast.log_chunks (tenant_id, sandbox_id, seq, stream, at, body) values ($1, $2, $3, 'stdout', now(), $4)",
    [tenant, sandbox, seq, body],
  );
}

/** Its output is whole. */
export async function settleLog(kernel: Kernel, sandbox: string): Promise<void> {
  await kernel.ask("update holdfast.sandbox_attempts set log_complete_at = now() where sandbox_id = $1", [
    sandbox,
  ]);
}

export async function finishAttempt(kernel: Kernel, attempt: string, job: string | null): Promise<void> {
  await kernel.ask(
    `update holdfast.execution_attempts
     set state = 'finished', outcome = 'failed', failure_code = 'test', finished_at = now() where attempt_id = $1`,
    [attempt],
  );
  await kernel.ask("update holdfast.jobs set state = 'failed', finished_at = now() where job_id = $1", [job]);
}

export async function insertArtifact(
  kernel: Kernel,
  tenant: string,
  job: string,
  artifact: { readonly name: string; readonly key: string; readonly bytes: number; readonly sha256: string },
): Promise<void> {
  await kernel.ask(
    `insert into holdfast.artifacts
       (tenant_id, job_id, name, blob_key, bytes, sha256, media_type, manifest, published_at, retain_until)
     values ($1, $2, $3, $4, $5, $6, 'text/html', '[]', now() - interval '2 hours', now() - interval '1 hour')`,
    [tenant, job, artifact.name, artifact.key, artifact.bytes, artifact.sha256],
  );
}
