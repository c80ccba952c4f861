import { brandId, type IncarnationId, type JobId, type TenantId, uuidv7 } from "../../src/core/ids.ts";
import { claimLeases } from "../../src/core/lease.store.ts";
import type { HeldLease } from "../../src/core/lease.ts";
import { type Database, transition } from "../../src/core/postgres/transition.ts";
import { createTenant } from "../../src/core/tenant.store.ts";
import { seconds } from "../../src/core/time.ts";
import { type Admission, claimWaiting, readWaiting } from "../../src/executions/admission.store.ts";
import { deleteLogChunks, recordLogArchive } from "../../src/executions/archive-log.store.ts";
import {
  executionKind,
  type Finish,
  finishExecution,
  markExecutionCleaned,
  readAttemptSnapshot,
  type Started,
  startExecution,
  underLease,
} from "../../src/executions/attempt.store.ts";
import { type AttemptSnapshot, decide, type Step } from "../../src/executions/attempt.ts";
import { cancelJob, submitJob } from "../../src/executions/job.store.ts";
import { listObjectsToRemove, markObjectRemoved } from "../../src/executions/object.sql.ts";
import {
  advancePhase,
  recordLogEnd,
  recordRelease,
  recordRemoved,
  recordResource,
  recordStopped,
  recordStopping,
} from "../../src/executions/phase.store.ts";
import { type Plan, planOf } from "../../src/executions/plan.ts";
import type { JobSpec, JobSubmission, PhaseKind } from "../../src/wire/job.ts";
import type { Scope } from "./database.ts";
import { type Kernel, openKernel, tenantA, tenantB } from "./kernel.ts";

/** A job that was started: its attempt, and the lease that its starter holds. */
export interface Begun {
  readonly job: JobId;
  readonly attempt: string;
  readonly lease: HeldLease;
  readonly plan: Plan;
}

export type NewJob = Partial<JobSpec> & {
  readonly tenant?: TenantId;
  readonly priority?: number;
  /** Phases by their kinds, each named as its kind; one that compiles, unless told otherwise. */
  readonly kinds?: readonly PhaseKind[];
};

/** What a runtime would have done, told to the record alone: no process is started anywhere. */
export interface Attempts {
  readonly kernel: Kernel;
  readonly db: Database;
  readonly holder: IncarnationId;
  submit(job?: NewJob): Promise<JobId>;
  claim(options?: {
    readonly limit?: number;
    readonly pool?: string;
    readonly db?: Database;
  }): Promise<Admission[]>;
  start(
    admission: Admission,
    more?: { readonly plan?: Plan; readonly ordinal?: number; readonly db?: Database },
  ): Promise<Started>;
  /** Submitted, claimed and started. */
  begin(job?: NewJob): Promise<Begun>;
  look(lease: HeldLease): Promise<AttemptSnapshot>;
  /** Do what is decided next, as a controller on a world where all goes well. Gives what it did. */
  step(lease: HeldLease, more?: StepOptions): Promise<Step>;
  /** Step by step until that would be the next step. */
  driveTo(lease: HeldLease, next: Step["do"], more?: StepOptions): Promise<AttemptSnapshot>;
  /** The snapshot with its one living sandbox running. */
  released(lease: HeldLease): Promise<AttemptSnapshot>;
  finish(lease: HeldLease, finish?: Partial<Finish>): ReturnType<typeof finishExecution>;
  cancel(job: JobId, tenant?: TenantId): Promise<void>;
  /** Its time is over, as if it had not been renewed. */
  expire(lease: HeldLease): Promise<void>;
  /** Its deadline has passed: the clock stays, and the facts are moved behind the triggers' backs. */
  overdue(attempt: string): Promise<void>;
  /** Somebody else takes it. */
  takeOver(lease: HeldLease): Promise<HeldLease>;
  /** Of every row of every table: equal when nothing has changed. */
  digest(): Promise<string>;
}

export interface StepOptions {
  readonly exitCode?: number;
  readonly pins?: Readonly<Record<string, string>>;
}

const installation = "test";
export const commit = "c".repeat(40);

export async function openAttempts(
  scope: Scope & { readonly after: (hook: () => Promise<void>) => void },
  options: {
    /** Of the pool `default`, which has two, unless told otherwise. */
    readonly slots?: number;
  } = {},
): Promise<Attempts> {
  const kernel = await openKernel(scope);
  await kernel.ask(
    "insert into holdfast.slots (pool, slot) select 'default', n from generate_series(3, $1::int) n",
    [options.slots ?? 2],
  );
  const { db } = kernel;
  await createTenant(db, tenantA);
  await createTenant(db, tenantB);
  const holder = brandId<IncarnationId>(uuidv7());
  const leaseUs = seconds(30);

  async function removeObjects(lease: HeldLease): Promise<void> {
    await underLease(db, lease, "markObjectRemoved", async (tx) => {
      const attempt = lease.resource;
      for (const { phase, name } of await tx.run(listObjectsToRemove, { attempt })) {
        await tx.run(markObjectRemoved, { attempt, phase, name });
      }
    });
  }

  const attempts: Attempts = {
    kernel,
    db,
    holder,
    async submit({ tenant = tenantA, ...job } = {}) {
      const row = await transition(db, { role: "gateway", tenant, name: "submit" }, (tx) =>
        submitJob(tx, { submission: submissionOf(job), queueMax: 1000 }),
      );
      return brandId<JobId>(row.job_id);
    },
    claim: ({ limit = 100, pool = "default", db: on = db } = {}) =>
      claimWaiting(on, { pool, holder, limit, leaseUs }),
    async start(admission, more = {}) {
      const { job, spec } = await readWaiting(db, admission);
      return startExecution(more.db ?? db, {
        tenant: admission.tenant,
        job: admission.job,
        ordinal: more.ordinal ?? job.attempts + 1,
        plan: more.plan ?? planOf(spec, "process"),
        admission,
        leaseUs,
      });
    },
    async begin(job = {}) {
      const id = await attempts.submit(job);
      const admission = (await attempts.claim()).find((claimed) => claimed.job === id);
      if (admission === undefined) throw new Error("the job was not claimed: is a slot free?");
      const plan = planOf((await readWaiting(db, admission)).spec, "process");
      const { attempt, lease } = await attempts.start(admission);
      if (lease === null) throw new Error("the attempt existed already");
      return { job: id, attempt, lease, plan };
    },
    look: (lease) => readAttemptSnapshot(db, lease.tenant, lease.resource),
    async step(lease, { exitCode = 0, pins = {} } = {}) {
      const view = await attempts.look(lease);
      const step = decide(view);
      switch (step.do) {
        case "hold":
          await recordResource(db, lease, step.sandbox, `uid-of-${step.sandbox.name}`);
          break;
        case "release":
          await recordRelease(db, lease, step.sandbox);
          for (const [source, id] of Object.entries(pins)) {
            await kernel.ask(
              "insert into holdfast.source_pins (tenant_id, attempt_id, source, commit_id, sandbox_id) values ($1, $2, $3, $4, $5) on conflict do nothing",
              [lease.tenant, lease.resource, source, id, step.sandbox.id],
            );
          }
          break;
        case "stop":
          await recordStopping(db, lease, step.sandbox, step.reason);
          break;
        case "watch":
          await recordStopped(
            db,
            lease,
            step.sandbox,
            { ...outcomeOf("exited"), exitCode },
            "it was waited for",
          );
          break;
        case "prove":
          await recordStopped(db, lease, step.sandbox, outcomeOf("stopped"), "it was waited for");
          break;
        case "abandon":
          await recordStopped(db, lease, step.sandbox, outcomeOf("never_started"), "never recorded");
          break;
        case "drain":
          await recordLogEnd(db, lease, step.sandbox.id, null);
          break;
        case "advance":
          await advancePhase(db, lease, view, step, installation);
          break;
        case "finish":
          await attempts.finish(lease, { ...step, attemptsMax: view.plan.attempts });
          break;
        case "archive":
          // No blobs here: the record alone is what the store sees.
          await recordLogArchive(
            db,
            lease,
            { key: `log/${lease.resource}`, bytes: 1n, sha256: "0".repeat(64), lines: 1n },
            seconds(3600),
          );
          break;
        case "trim":
          for (const sandbox of view.sandboxes) await deleteLogChunks(db, lease, sandbox.id);
          break;
        case "clean":
          for (const sandbox of view.sandboxes) await recordRemoved(db, lease, sandbox);
          await removeObjects(lease);
          await markExecutionCleaned(db, lease);
          break;
        case "nothing":
          break;
        // Output is not written here.
        default:
          throw new Error(`the bench can't ${JSON.stringify(step)}`);
      }
      return step;
    },
    async driveTo(lease, next, more) {
      for (let steps = 0; steps < 100; steps += 1) {
        const view = await attempts.look(lease);
        if (decide(view).do === next) return view;
        await attempts.step(lease, more);
      }
      throw new Error(`a hundred steps did not lead to ${next}`);
    },
    released: (lease) => attempts.driveTo(lease, "watch"),
    finish: (lease, finish = {}) =>
      finishExecution(db, lease, {
        outcome: "succeeded",
        failure: null,
        retentionUs: 3_600_000_000n,
        attemptsMax: 1,
        queueMax: 1000,
        ...finish,
      }),
    async cancel(job, tenant = tenantA) {
      await transition(db, { role: "gateway", tenant, name: "cancel" }, (tx) =>
        cancelJob(tx, { job, reason: "not needed" }),
      );
    },
    async expire({ kind, resource }) {
      await kernel.ask(
        "update holdfast.leases set wake_at = holdfast.ledger_now() where kind = $1 and resource_id = $2",
        [kind, resource],
      );
    },
    async overdue(attempt) {
      await kernel.ask("begin");
      await kernel.ask("set local session_replication_role = replica");
      await kernel.ask(
        `update holdfast.execution_attempts set started_at = now() - (deadline - started_at), deadline = now()
         where attempt_id = $1`,
        [attempt],
      );
      await kernel.ask(
        "update holdfast.sandbox_attempts set planned_at = now() - interval '1 hour', deadline = now() where owner_id = $1",
        [attempt],
      );
      await kernel.ask("commit");
    },
    async takeOver(lease) {
      await attempts.expire(lease);
      const other = brandId<IncarnationId>(uuidv7());
      const claimed = await claimLeases(db, {
        kind: executionKind,
        queue: "process",
        holder: other,
        limit: 100,
        quota: 100,
      });
      const own = claimed.find(({ resource }) => resource === lease.resource);
      if (own === undefined) throw new Error("the lease could not be taken");
      return own;
    },
    async digest() {
      const tables = await kernel.ask<{ name: string }>(
        `select c.oid::regclass::text as name from pg_class c
         where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'r' order by 1`,
      );
      const [row] = await kernel.ask<{ digest: string }>(
        `select md5(concat_ws('|', ${tables
          .map(({ name }) => `(select string_agg(t::text, ';' order by t::text) from ${name} t)`)
          .join(", ")})) as digest`,
      );
      if (row === undefined) throw new Error("no digest");
      return row.digest;
    },
  };
  return attempts;
}

export function outcomeOf(kind: "exited" | "stopped" | "never_started") {
  return {
    kind,
    exitCode: kind === "exited" ? 0 : null,
    signal: null,
    message: kind,
    startedAt: null,
    finishedAt: null,
  } as const;
}

export function submissionOf({
  priority,
  kinds = ["compile"],
  ...spec
}: Omit<NewJob, "tenant"> = {}): JobSubmission {
  return {
    apiVersion: "holdfast/v1",
    kind: "Job",
    metadata: { name: "job", ...(priority === undefined ? {} : { priority }) },
    spec: {
      phases: kinds.map((kind, index) => ({
        name: kinds.indexOf(kind) === index ? kind : `${kind}-${index + 1}`,
        kind,
        command: ["true"],
      })),
      ...spec,
    },
  };
}
