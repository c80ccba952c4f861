import { type Static, Type } from "typebox";

/** Bounds of the public API, each in one place. */
export const jobLimits = {
  deadlineMicrosecondsMax: 10_800_000_000n, // three hours, which the database enforces too (E4)
  deadlineDefault: "30m",
  graceMicrosecondsMax: 300_000_000n,
  fileBytesMax: 262_144,
  phasesMax: 32,
  sourcesMax: 16,
  labelsMax: 64,
  commandWordsMax: 256,
  wordLengthMax: 8192,
  environmentMax: 128,
  /** Of the names and values together: a job's whole view has to fit into one change. */
  labelsBytesMax: 8192,
  specBytesMax: 196_608,
} as const;

const closed = { additionalProperties: false } as const;
/** The title names the shape in the OpenAPI document. */
const titled = (title: string) => ({ ...closed, title });

export const Name = Type.String({ pattern: "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" });
export const PhaseName = Type.String({ pattern: "^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$" });
export const Uuid = Type.String({
  pattern: "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
});
export const Timestamp = Type.String({ pattern: "^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{6}Z$" });
export const Sha256 = Type.String({ pattern: "^[0-9a-f]{64}$" });
export const Duration = Type.String({
  pattern: "^(?=.)(\\d{1,9}h)?(\\d{1,9}m)?(\\d{1,9}s)?(\\d{1,9}ms)?(\\d{1,9}us)?$",
});
/** Text without NUL, which PostgreSQL can't store. */
const Text = (maxLength: number) => Type.String({ maxLength, pattern: "^[^\\u0000]*$" });

const LabelName = Type.String({ pattern: "^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$" });
const labelBounds = { maxProperties: jobLimits.labelsMax, additionalProperties: false } as const;
export const Labels = Type.Record(LabelName, Text(255), labelBounds);
/** 0 is the most urgent. */
export const Priority = Type.Integer({ minimum: 0, maximum: 3 });

export const EnvironmentName = Type.String({ pattern: "^(?!HOLDFAST_)[A-Za-z_][A-Za-z0-9_]{0,127}$" });

export const Repository = Type.String({
  minLength: 1,
  maxLength: 2048,
  pattern: "^[^\\u0000-\\u001f-][^\\u0000-\\u001f]*$",
});
export const Ref = Type.String({
  minLength: 1,
  maxLength: 255,
  pattern: "^[^\\u0000-\\u0020-][^\\u0000-\\u0020]*$",
});
export const ImageName = Type.String({ minLength: 1, maxLength: 512, pattern: "^[^\\u0000-\\u0020]+$" });
export const SecretKey = Type.String({ pattern: "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$" });

export const Source = Type.Object({ repository: Repository, ref: Ref }, titled("Source"));

export const PhaseKind = Type.Union([
  Type.Literal("source"),
  Type.Literal("compile"),
  Type.Literal("publish"),
]);

export const PhaseSpec = Type.Object(
  {
    name: PhaseName,
    kind: PhaseKind,
    command: Type.Array(
      Type.String({ minLength: 1, maxLength: jobLimits.wordLengthMax, pattern: "^[^\\u0000]*$" }),
      {
        minItems: 1,
        maxItems: jobLimits.commandWordsMax,
      },
    ),
    image: Type.Optional(ImageName),
    env: Type.Optional(
      Type.Record(EnvironmentName, Text(32768), {
        maxProperties: jobLimits.environmentMax,
        additionalProperties: false,
      }),
    ),
    /** Environment from secrets: `NAME: { name, key }`, which the runtime resolves where the phase runs. */
    secrets: Type.Optional(
      Type.Record(EnvironmentName, Type.Object({ name: Name, key: SecretKey }, closed), {
        maxProperties: jobLimits.environmentMax,
        additionalProperties: false,
      }),
    ),
    /** Between asking a phase to stop and killing it. */
    grace: Type.Optional(Duration),
    limits: Type.Optional(
      Type.Object(
        {
          cpu_millicores: Type.Optional(Type.Integer({ minimum: 10, maximum: 256_000 })),
          memory_bytes: Type.Optional(Type.Integer({ minimum: 16_777_216, maximum: 4_398_046_511_104 })),
          disk_bytes: Type.Optional(Type.Integer({ minimum: 1_048_576, maximum: 17_592_186_044_416 })),
        },
        closed,
      ),
    ),
  },
  titled("PhaseSpec"),
);

export const JobSpec = Type.Object(
  {
    /** From the start of an attempt; at most three hours. */
    deadline: Type.Optional(Duration),
    /** One or two attempts; the second only after a failure, when the queue has room (E12). */
    attempts: Type.Optional(Type.Integer({ minimum: 1, maximum: 2 })),
    pool: Type.Optional(Name),
    sources: Type.Optional(
      Type.Record(Name, Source, { maxProperties: jobLimits.sourcesMax, additionalProperties: false }),
    ),
    phases: Type.Array(PhaseSpec, { minItems: 1, maxItems: jobLimits.phasesMax }),
  },
  titled("JobSpec"),
);

/** A job file, and the body of `POST /v1/jobs`. */
export const JobSubmission = Type.Object(
  {
    apiVersion: Type.Literal("holdfast/v1"),
    kind: Type.Literal("Job"),
    metadata: Type.Object(
      { name: Name, labels: Type.Optional(Labels), priority: Type.Optional(Priority) },
      closed,
    ),
    spec: JobSpec,
  },
  titled("JobSubmission"),
);

export const JobState = Type.Union([
  Type.Literal("queued"),
  Type.Literal("running"),
  Type.Literal("succeeded"),
  Type.Literal("failed"),
  Type.Literal("cancelled"),
]);

const Nullable = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

export const Failure = Type.Object({ code: Type.String(), message: Type.String() }, titled("Failure"));

/** Why nothing of it goes on until an operator does something: found when it was asked for, and no part of a change. */
export const Blocked = Type.Object(
  { code: Type.Literal("no_controller"), message: Type.String() },
  titled("Blocked"),
);

/** A job as the API shows it, and the body of its changes. */
export const JobView = Type.Object(
  {
    id: Uuid,
    name: Name,
    state: JobState,
    priority: Priority,
    labels: Labels,
    resource_version: Type.String({ pattern: "^[0-9]+$" }),
    spec_digest: Sha256,
    /** How many attempts were started. */
    attempts: Type.Integer({ minimum: 0, maximum: 2 }),
    created_at: Timestamp,
    queued_at: Timestamp,
    finished_at: Nullable(Timestamp),
    cancel_requested_at: Nullable(Timestamp),
    cancel_reason: Nullable(Type.String()),
    failure: Nullable(Failure),
    blocked: Type.Optional(Blocked),
  },
  titled("JobView"),
);

export const PhaseView = Type.Object(
  {
    name: PhaseName,
    kind: PhaseKind,
    state: Type.Union([
      Type.Literal("pending"),
      Type.Literal("running"),
      Type.Literal("succeeded"),
      Type.Literal("failed"),
      Type.Literal("skipped"),
    ]),
    started_at: Nullable(Timestamp),
    finished_at: Nullable(Timestamp),
    progress: Nullable(Type.Object({ message: Type.String(), percent: Nullable(Type.Integer()) }, closed)),
    /** Why it failed; null in every other state. */
    failure: Nullable(Failure),
    result: Nullable(Type.Record(Type.String(), Type.Unknown())),
  },
  titled("PhaseView"),
);

export const SandboxView = Type.Object(
  {
    id: Uuid,
    phase: PhaseName,
    name: Type.String(),
    runtime: Type.String(),
    uid: Nullable(Type.String()),
    state: Type.Union([
      Type.Literal("planned"),
      Type.Literal("held"),
      Type.Literal("released"),
      Type.Literal("stopping"),
      Type.Literal("stopped"),
      Type.Literal("removed"),
    ]),
    planned_at: Timestamp,
    held_at: Nullable(Timestamp),
    released_at: Nullable(Timestamp),
    stopping_at: Nullable(Timestamp),
    stop_reason: Nullable(Type.String()),
    stopped_at: Nullable(Timestamp),
    stop_proof: Nullable(Type.String()),
    removed_at: Nullable(Timestamp),
    outcome: Nullable(Type.String()),
    exit_code: Nullable(Type.Integer()),
    message: Nullable(Type.String()),
    /** The principal that declared it stopped while nothing could prove it. */
    overridden_by: Nullable(Uuid),
    /** Since when and why its stop could not be proven; stays when an operator has overridden it. */
    stop_unproven: Nullable(Type.Object({ since: Timestamp, reason: Type.String() }, closed)),
    log_bytes: Type.Integer(),
    log_truncated: Type.Boolean(),
  },
  titled("SandboxView"),
);

/** An attempt's output after its end: archived, and removed when its retention has ended. */
export const LogArchiveView = Type.Object(
  {
    lines: Type.Integer({ minimum: 1 }),
    /** Of the archive, compressed. */
    bytes: Type.Integer({ minimum: 1 }),
    sha256: Sha256,
    archived_at: Timestamp,
    retain_until: Timestamp,
    removed_at: Nullable(Timestamp),
  },
  titled("LogArchiveView"),
);

/** What an attempt was going to do, decided before anything of it existed (E1), and kept for good (E14). */
export const PlanView = Type.Object(
  {
    version: Type.Literal("holdfast.plan.v1"),
    runtime: Name,
    pool: Name,
    /** Whole microseconds, as text: from the attempt's start. */
    deadline_us: Type.String({ pattern: "^[0-9]+$" }),
    attempts: Type.Integer({ minimum: 1, maximum: 2 }),
    sources: Type.Record(Name, Source),
    phases: Type.Array(
      Type.Object(
        {
          name: PhaseName,
          kind: PhaseKind,
          command: Type.Array(Type.String()),
          env: Type.Record(Type.String(), Type.String()),
          secrets: Type.Record(Type.String(), Type.Object({ name: Name, key: SecretKey }, closed)),
          image: Nullable(Type.String()),
          grace_us: Type.String({ pattern: "^[0-9]+$" }),
          limits: Type.Object(
            {
              cpu_millicores: Type.Integer(),
              memory_bytes: Type.Integer(),
              disk_bytes: Type.Integer(),
            },
            closed,
          ),
        },
        closed,
      ),
    ),
  },
  titled("PlanView"),
);
/** The digest is that of the plan in canonical JSON: it tells whether two attempts were meant to do the same. */
export const AttemptPlanView = Type.Object(
  { job_id: Uuid, attempt: Type.Integer({ minimum: 1, maximum: 2 }), plan_digest: Sha256, plan: PlanView },
  titled("AttemptPlanView"),
);

export const AttemptView = Type.Object(
  {
    id: Uuid,
    job_id: Uuid,
    attempt: Type.Integer({ minimum: 1, maximum: 2 }),
    state: Type.Union([Type.Literal("active"), Type.Literal("finished"), Type.Literal("cleaned")]),
    outcome: Nullable(
      Type.Union([Type.Literal("succeeded"), Type.Literal("failed"), Type.Literal("cancelled")]),
    ),
    failure: Nullable(Failure),
    pool: Name,
    plan_digest: Sha256,
    started_at: Timestamp,
    deadline: Timestamp,
    finished_at: Nullable(Timestamp),
    cleaned_at: Nullable(Timestamp),
    resource_version: Type.String(),
    phases: Type.Array(PhaseView),
    pins: Type.Record(Name, Type.String()),
    sandboxes: Type.Array(SandboxView),
    /** Null while it runs, until its output is archived, and when it wrote nothing. */
    log: Nullable(LogArchiveView),
  },
  titled("AttemptView"),
);

/** An operator's word that a sandbox has stopped, which ends up in the audit. */
export const StopOverride = Type.Object(
  { reason: Type.String({ minLength: 1, maxLength: 500, pattern: "^[^\\u0000]*$" }) },
  titled("StopOverride"),
);

export const ArtifactView = Type.Object(
  {
    job_id: Uuid,
    name: Type.String(),
    bytes: Type.Integer({ minimum: 0 }),
    sha256: Sha256,
    media_type: Type.String(),
    published_at: Timestamp,
    retain_until: Timestamp,
    removed_at: Nullable(Timestamp),
    files: Type.Array(
      Type.Object({ name: Type.String(), bytes: Type.Integer({ minimum: 0 }), sha256: Sha256 }, closed),
    ),
  },
  titled("ArtifactView"),
);

/** A merge patch (RFC 7396): labels that it doesn't name stay, a label set to null is removed. */
export const JobPatch = Type.Object(
  {
    labels: Type.Optional(Type.Record(LabelName, Nullable(Text(255)), labelBounds)),
    priority: Type.Optional(Priority),
  },
  { ...titled("JobPatch"), minProperties: 1 },
);

export const JobCancellation = Type.Object({ reason: Type.Optional(Text(1000)) }, titled("JobCancellation"));

/** One line of output, as `GET /v1/jobs/{id}/logs` streams it (JSON lines). */
export const LogLine = Type.Object(
  {
    cursor: Type.String(),
    attempt: Type.Integer(),
    phase: PhaseName,
    stream: Type.Union([Type.Literal("stdout"), Type.Literal("stderr"), Type.Literal("system")]),
    at: Timestamp,
    text: Type.String(),
  },
  titled("LogLine"),
);

/** One change, as the watch stream sends it in `data`. */
export const ChangeEvent = Type.Object(
  {
    cursor: Type.String(),
    kind: Type.String(),
    id: Uuid,
    root_id: Uuid,
    resource_version: Type.String(),
    operation: Type.String(),
    at: Timestamp,
    /** W3C trace context of the request that caused it, where that is known. */
    traceparent: Nullable(Type.String()),
    body: Type.Unknown(),
  },
  titled("ChangeEvent"),
);

export type JobSpec = Static<typeof JobSpec>;
export type PhaseSpec = Static<typeof PhaseSpec>;
export type PhaseKind = Static<typeof PhaseKind>;
export type JobSubmission = Static<typeof JobSubmission>;
export type JobState = Static<typeof JobState>;
export type Blocked = Static<typeof Blocked>;
export type JobView = Static<typeof JobView>;
export type PhaseView = Static<typeof PhaseView>;
export type SandboxView = Static<typeof SandboxView>;
export type AttemptView = Static<typeof AttemptView>;
export type LogArchiveView = Static<typeof LogArchiveView>;
export type PlanView = Static<typeof PlanView>;
export type AttemptPlanView = Static<typeof AttemptPlanView>;
export type ArtifactView = Static<typeof ArtifactView>;
export type JobPatch = Static<typeof JobPatch>;
export type StopOverride = Static<typeof StopOverride>;
export type JobCancellation = Static<typeof JobCancellation>;
export type LogLine = Static<typeof LogLine>;
export type ChangeEvent = Static<typeof ChangeEvent>;
