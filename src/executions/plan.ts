import { canonicalDigest } from "../core/canonical.ts";
import { HoldfastError } from "../core/errors.ts";
import type { SandboxSpec } from "../core/runtime.port.ts";
import { type Microseconds, microseconds, parseDuration } from "../core/time.ts";
import { sandboxDefaults } from "../sandboxes/sandbox.ts";
import { type JobSpec, jobLimits, type PhaseKind, type PhaseSpec } from "../wire/job.ts";

/**
 * What one attempt will do, decided once, before anything exists outside the database (E1). Stored with the
 * attempt and never changed; its digest tells whether two starts of an attempt mean the same (E3). Everything
 * that a default or a configuration could change later is written out in it.
 */
export interface Plan {
  readonly version: "holdfast.plan.v1";
  readonly runtime: string;
  readonly pool: string;
  readonly deadline_us: string;
  /** How many attempts the job may have: one, or two when a failure may be retried (E12). */
  readonly attempts: number;
  readonly sources: Readonly<Record<string, { readonly repository: string; readonly ref: string }>>;
  readonly phases: readonly PlannedPhase[];
}

export interface PlannedPhase {
  readonly name: string;
  readonly kind: PhaseKind;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly secrets: Readonly<Record<string, { readonly name: string; readonly key: string }>>;
  readonly image: string | null;
  readonly grace_us: string;
  readonly limits: {
    readonly cpu_millicores: number;
    readonly memory_bytes: number;
    readonly disk_bytes: number;
  };
}

export const planDefaults = {
  pool: "default",
  attempts: 1,
  ...sandboxDefaults,
} as const;

/** Pure: the same spec and runtime give the same plan. The spec was validated when the job was submitted. */
export function planOf(spec: JobSpec, runtime: string): Plan {
  const deadline = durationOf(spec.deadline ?? jobLimits.deadlineDefault, "/spec/deadline");
  if (deadline <= 0n || deadline > jobLimits.deadlineMicrosecondsMax) {
    throw new HoldfastError("invalid_request", "a deadline is more than nothing and at most three hours");
  }
  return {
    version: "holdfast.plan.v1",
    runtime,
    pool: spec.pool ?? planDefaults.pool,
    deadline_us: String(deadline),
    attempts: spec.attempts ?? planDefaults.attempts,
    sources: spec.sources ?? {},
    phases: spec.phases.map((phase) => plannedPhase(phase, deadline)),
  };
}

/** The default leaves most of a short deadline to the work: a stop begins its grace before the deadline. */
function graceOf(phase: PhaseSpec, deadline: Microseconds): bigint {
  if (phase.grace !== undefined) return durationOf(phase.grace, `/spec/phases/${phase.name}/grace`);
  const usual = durationOf(planDefaults.grace, "/spec/phases");
  return usual < deadline / 4n ? usual : deadline / 4n;
}

function plannedPhase(phase: PhaseSpec, deadline: Microseconds): PlannedPhase {
  return {
    name: phase.name,
    kind: phase.kind,
    command: phase.command,
    env: phase.env ?? {},
    secrets: phase.secrets ?? {},
    image: phase.image ?? null,
    grace_us: String(graceOf(phase, deadline)),
    limits: {
      cpu_millicores: phase.limits?.cpu_millicores ?? planDefaults.cpuMillicores,
      memory_bytes: phase.limits?.memory_bytes ?? planDefaults.memoryBytes,
      disk_bytes: phase.limits?.disk_bytes ?? planDefaults.diskBytes,
    },
  };
}

function durationOf(text: string, pointer: string): Microseconds {
  const duration = parseDuration(text);
  if (duration === undefined) {
    throw new HoldfastError("invalid_request", `${text} is not a duration`, {
      fields: [{ pointer, message: "write a duration such as 90s, 10m or 1h30m" }],
    });
  }
  return duration;
}

export function planDigest(plan: Plan): string {
  return canonicalDigest(plan);
}

/** What a phase's sandbox runs. Pins are part of it: the same phase at other commits is another thing to run. */
export function sandboxSpecOf(
  plan: Plan,
  phase: PlannedPhase,
  context: {
    readonly job: string;
    readonly ordinal: number;
    readonly pins: Readonly<Record<string, string>>;
    /** W3C trace context of whoever submitted the job; a phase may set another. */
    readonly traceparent?: string | null;
  },
): SandboxSpec {
  return {
    command: phase.command,
    env: {
      ...(context.traceparent == null ? {} : { TRACEPARENT: context.traceparent }),
      ...phase.env,
      HOLDFAST_JOB: context.job,
      HOLDFAST_ATTEMPT: String(context.ordinal),
      HOLDFAST_PHASE: phase.name,
      HOLDFAST_SOURCES: JSON.stringify(plan.sources),
      ...(phase.kind === "source" ? {} : { HOLDFAST_PINS: JSON.stringify(context.pins) }),
    },
    secrets: phase.secrets,
    image: phase.image,
    grace: microseconds(BigInt(phase.grace_us)),
    limits: {
      cpuMillicores: phase.limits.cpu_millicores,
      memoryBytes: phase.limits.memory_bytes,
      diskBytes: phase.limits.disk_bytes,
    },
  };
}
