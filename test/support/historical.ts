import { copyFile, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { canonicalDigest } from "../../src/core/canonical.ts";
import { brandId, type JobId, uuidv7 } from "../../src/core/ids.ts";
import type { Loop } from "../../src/core/loop.ts";
import { seconds } from "../../src/core/time.ts";
import { startDirectClaimant } from "../../src/executions/direct-claimant.ts";
import { type Containers, containersOf } from "../../src/executions/direct-container.ts";
import type { Foundation } from "../../src/main/process.ts";
import { type Stack, type StackScope, testStack } from "./stack.ts";

/** Jobs from before there were executions, and a host whose `docker` is a script. */
export interface DirectHost {
  readonly command: string;
  /** What the jobs' own commands wrote, one line each. */
  readonly marks: () => Promise<string[]>;
  readonly markFile: string;
  readonly containers: () => Promise<string[]>;
  readonly real: Containers;
  /** While there is a file of this name, the stand-in refuses: everything (`down`), or to start (`no-start`). */
  readonly fault: (name: "down" | "no-start") => Promise<() => Promise<void>>;
  readonly claimant: (
    foundation: Foundation,
    options?: { readonly host?: string; readonly jobsMax?: number; readonly containers?: Containers },
  ) => Promise<Loop & { readonly errors: unknown[] }>;
}

/** A stack with a host beside it, whose claimants stop before the stack closes what they stand on. */
export async function directStack(scope: StackScope): Promise<{ stack: Stack; host: DirectHost }> {
  const claimants: Loop[] = [];
  // Hooks run in the order in which they were added.
  scope.after(async () => {
    await Promise.all(claimants.map((claimant) => claimant.stop()));
  });
  const stack = await testStack(scope);
  return { stack, host: await directHost(stack, (claimant) => claimants.push(claimant)) };
}

async function directHost(stack: Stack, opened: (claimant: Loop) => void): Promise<DirectHost> {
  const directory = join(stack.directory, "host");
  await mkdir(directory);
  const command = join(directory, "docker");
  await copyFile(resolve(import.meta.dirname, "../fixtures/container-command.sh"), command);
  const markFile = join(directory, "marks");
  const { installation, tenant } = stack;
  const real = containersOf({ command, installation, tenant });
  return {
    command,
    markFile,
    real,
    async marks() {
      const text = await readFile(markFile, "utf8").catch(() => "");
      return text.split("\n").filter((line) => line !== "");
    },
    async containers() {
      const found = await readdir(join(directory, "containers")).catch(() => []);
      return found.filter((name) => !name.startsWith("."));
    },
    async fault(name) {
      const file = join(directory, name);
      await writeFile(file, "");
      return () => rm(file);
    },
    async claimant(foundation, { host = "host-1", jobsMax = 1, containers = real } = {}) {
      const errors: unknown[] = [];
      const loop = await startDirectClaimant({
        db: foundation.db,
        tenant,
        host,
        containers,
        jobsMax,
        changes: (owner, root, onChange) => foundation.reader.subscribe({ tenant: owner, root }, onChange),
        onError: (error) => errors.push(error),
        claimUs: seconds(30),
        pollMs: 50,
      });
      opened(loop);
      return { stop: () => loop.stop(), errors };
    },
  };
}

/** A row as the superuser would have had it from before: not enrolled, without a lease or a change. */
export async function insertHistorical(stack: Stack, spec: unknown): Promise<JobId> {
  const job = brandId<JobId>(uuidv7());
  const digest = canonicalDigest(spec);
  await stack.rows(
    `with spec as (insert into holdfast.job_specs (tenant_id, spec_digest, spec) values ($1, $3, $4) on conflict do nothing)
     insert into holdfast.jobs (tenant_id, job_id, name, spec_digest, created_at, queued_at)
     values ($1, $2, 'historical', $3, now() - interval '1 day', now() - interval '1 day')`,
    [stack.tenant, job, digest, JSON.stringify(spec)],
  );
  return job;
}

/** A spec of phases with an image each, which are short shell commands. */
export function imageSpec(
  commands: readonly string[],
  { deadline = "2m", grace = "1s" }: { readonly deadline?: string; readonly grace?: string } = {},
) {
  return {
    deadline,
    phases: commands.map((run, index) => ({
      name: `phase-${index + 1}`,
      kind: "compile" as const,
      image: "registry.example/tools:1",
      command: ["sh", "-c", run],
      grace,
    })),
  };
}

export interface JobFacts {
  readonly state: string;
  readonly failure_code: string | null;
  readonly failure_message: string | null;
  readonly claimed_by: string | null;
  readonly container_id: string | null;
}

export async function jobFacts(stack: Stack, job: JobId): Promise<JobFacts> {
  const [row] = await stack.rows<JobFacts>(
    "select state, failure_code, failure_message, claimed_by, container_id from holdfast.jobs where job_id = $1",
    [job],
  );
  if (row === undefined) throw new Error("there is no such job");
  return row;
}

/** As if its holder had not renewed it for long enough. */
export async function ageClaim(stack: Stack, job: JobId): Promise<void> {
  await stack.rows("update holdfast.jobs set claimed_until = now() - interval '1 s' where job_id = $1", [
    job,
  ]);
}
