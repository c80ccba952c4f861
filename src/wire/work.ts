import { type Static, Type } from "typebox";
import { Duration, Priority, Timestamp, Uuid } from "./job.ts";

const closed = { additionalProperties: false } as const;
/** The title names the shape in the OpenAPI document. */
const titled = (title: string) => ({ ...closed, title });
const Nullable = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
/** Text without NUL, which PostgreSQL can't store. */
const Text = (maxLength: number) => Type.String({ minLength: 1, maxLength, pattern: "^[^\\u0000]*$" });
const Count = Type.Integer({ minimum: 0 });
/** Whole microseconds: JSON's numbers end before theirs. */
const Microseconds = Type.String({ pattern: "^[0-9]+$" });
const Number64 = Type.String({ pattern: "^[0-9]+$" });

export const workLimits = {
  /** Items of one call. */
  batchMax: 500,
  noteLengthMax: 1_000,
} as const;

export const WorkName = Type.String({ pattern: "^[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?$" });
export const WorkVersionName = Type.String({ pattern: "^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$" });
export const WorkQueue = Type.String({ pattern: "^[a-z0-9]([a-z0-9_-]{0,38}[a-z0-9])?$" });

export const WorkStateName = Type.Union(
  [
    Type.Literal("pending"),
    Type.Literal("leased"),
    Type.Literal("permitted"),
    Type.Literal("retry_wait"),
    Type.Literal("cancel_pending"),
    Type.Literal("reconciling"),
    Type.Literal("suspended"),
    Type.Literal("succeeded"),
    Type.Literal("succeeded_after_cancel_requested"),
    Type.Literal("failed"),
    Type.Literal("cancelled_before_effect"),
  ],
  { title: "WorkState" },
);
export const workStates = WorkStateName.anyOf.map((state) => state.const);

export const SuspensionReason = Type.Union([
  Type.Literal("outcome_unknown"),
  Type.Literal("not_applied"),
  Type.Literal("tenant_disabled"),
  Type.Literal("operator"),
]);
export const suspensionReasons = SuspensionReason.anyOf.map((reason) => reason.const);

const item = {
  /** The item's id and its command's: made when left out. */
  id: Type.Optional(Uuid),
  /** The same key again, with the same request, resolves to the same item (W9). */
  key: Type.Optional(Type.String({ pattern: "^[\\u0021-\\u007e]{1,255}$" })),
  /** Any JSON. Its shape is checked where it runs: only the worker has its schema. */
  input: Type.Unknown(),
  /** No attempt begins, and no success counts, from then on. Never extended. */
  deadline: Type.Optional(Timestamp),
  /** Eligible only after this pause. Planned work takes none. */
  delay: Type.Optional(Duration),
  queue: Type.Optional(WorkQueue),
  priority: Type.Optional(Priority),
  /** The effect's key at its provider, for `provider_keyed`; the item's id when left out. */
  provider_key: Type.Optional(Text(255)),
  /** Items of one key share a circuit breaker, when their version has one. */
  circuit_key: Type.Optional(Text(128)),
} as const;
const version = { name: WorkName, version: WorkVersionName } as const;

/** The body of `POST /v1/work`. */
export const WorkSubmission = Type.Object({ ...version, ...item }, titled("WorkSubmission"));
const WorkItem = Type.Object(item, titled("WorkItem"));
/** The body of `POST /v1/work:batch`: all of it is accepted, or none. */
export const WorkBatch = Type.Object(
  { ...version, items: Type.Array(WorkItem, { minItems: 1, maxItems: workLimits.batchMax }) },
  titled("WorkBatch"),
);

/** What an identity resolved to. */
export const WorkReceipt = Type.Object(
  {
    id: Uuid,
    /** An identical request was accepted before, and this is its item. */
    duplicate: Type.Boolean(),
    accepted_at: Timestamp,
  },
  titled("WorkReceipt"),
);
export const WorkReceipts = Type.Object({ items: Type.Array(WorkReceipt) }, titled("WorkReceipts"));

const Failure = Type.Object({ code: Type.String(), message: Type.String() }, closed);

const facts = {
  id: Uuid,
  name: WorkName,
  version: WorkVersionName,
  safety: Type.String(),
  policy: Type.Union([Type.Literal("legacy"), Type.Literal("deadline"), Type.Literal("planned")]),
  queue: WorkQueue,
  priority: Priority,
  state: WorkStateName,
  /** Permits so far. One that was given back unused does not count. */
  attempts: Count,
  attempts_max: Count,
  accepted_at: Timestamp,
  /** When it is eligible again; null while it is in somebody's hands, out of its line, or finished. */
  next_due_at: Nullable(Timestamp),
  /** From then on no attempt is admitted. */
  cutoff_at: Timestamp,
  deadline: Nullable(Timestamp),
  finished_at: Nullable(Timestamp),
  failure: Nullable(Failure),
  suspended: Nullable(Type.Object({ reason: SuspensionReason, since: Timestamp }, closed)),
  cancel_requested_at: Nullable(Timestamp),
  /** Whether an attempt's outcome is unknown that no proof has settled. */
  outcome_unknown: Type.Boolean(),
  /** Equal while nothing that is told here has changed; says nothing of order. */
  resource_version: Number64,
} as const;

/** One item of work, without its payload. */
export const WorkView = Type.Object(facts, titled("WorkView"));

const Proof = Type.Object(
  {
    verdict: Type.String(),
    source: Type.String(),
    by: Type.String(),
    at: Timestamp,
    note: Nullable(Type.String()),
  },
  closed,
);
const Attempt = Type.Object(
  {
    attempt: Type.Integer({ minimum: 1 }),
    holder: Nullable(Type.String()),
    epoch: Number64,
    /** `running`, `succeeded`, `failed`, `unknown` (its worker was lost), `returned` (no code was called). */
    outcome: Type.String(),
    admitted_at: Nullable(Timestamp),
    ended_at: Nullable(Timestamp),
    failure: Nullable(Failure),
    proof: Nullable(Proof),
  },
  closed,
);
const Slot = Type.Object(
  {
    attempt: Type.Integer({ minimum: 1 }),
    offset_us: Microseconds,
    eligible_at: Timestamp,
    /** What became of it: an outcome, `not_used`, or the state of the item. */
    came: Type.String(),
  },
  closed,
);

/** Every stored fact of an item but its payload (W12). */
export const WorkDetail = Type.Object(
  {
    ...facts,
    key: Nullable(Type.String()),
    fingerprint: Type.String(),
    fingerprint_schema: Count,
    provider_key: Nullable(Type.String()),
    circuit_key: Nullable(Type.String()),
    /** Where a worker finds it: the number of its version and its queue. */
    discovery_hint: Nullable(Type.String()),
    /** W3C trace context of the request that it came with. */
    traceparent: Nullable(Type.String()),
    first_due_at: Timestamp,
    execution_policy_schema: Nullable(Type.String()),
    retry: Type.Object(
      {
        initial_us: Microseconds,
        longest_us: Microseconds,
        elapsed_max_us: Microseconds,
        lease_max_us: Microseconds,
      },
      closed,
    ),
    plan: Nullable(
      Type.Object({ version: Type.String(), circuit_us: Microseconds, slots: Type.Array(Slot) }, closed),
    ),
    /** The first look at or after the deadline. */
    deadline_reached_at: Nullable(Timestamp),
    /** The first closure of admission. */
    admission_closed: Nullable(Type.Object({ at: Timestamp, reason: Type.String() }, closed)),
    /** Who has it now. `admitted_at` is null before the permit. */
    lease: Nullable(
      Type.Object(
        {
          holder: Type.String(),
          epoch: Number64,
          until: Timestamp,
          renewable_until: Nullable(Timestamp),
          admitted_at: Nullable(Timestamp),
        },
        closed,
      ),
    ),
    attempt_log: Type.Array(Attempt),
    suspensions: Type.Array(
      Type.Object(
        {
          since: Timestamp,
          reason: SuspensionReason,
          by: Nullable(Type.String()),
          ended_at: Nullable(Timestamp),
          ended_by: Nullable(Type.String()),
          ending: Nullable(Type.String()),
        },
        closed,
      ),
    ),
    cancel: Nullable(Type.Object({ at: Timestamp, by: Type.String(), reason: Type.String() }, closed)),
    /** Late results, quarantined: none of them is a success. */
    observations: Type.Array(
      Type.Object(
        {
          id: Uuid,
          attempt: Type.Integer({ minimum: 1 }),
          holder: Type.String(),
          epoch: Number64,
          outcome: Type.String(),
          reason: Type.String(),
          failure: Nullable(Failure),
          at: Timestamp,
          retention_policy: Nullable(Type.String()),
        },
        closed,
      ),
    ),
    circuit: Nullable(
      Type.Object(
        {
          failures: Count,
          opened_at: Nullable(Timestamp),
          probe_at: Nullable(Timestamp),
          probing: Nullable(Uuid),
          probe_until: Nullable(Timestamp),
        },
        closed,
      ),
    ),
  },
  titled("WorkDetail"),
);

/** What was submitted, what it gave, and what came too late. */
export const WorkPayload = Type.Object(
  {
    input: Type.Unknown(),
    result: Type.Unknown(),
    late_results: Type.Array(Type.Object({ observation_id: Uuid, result: Type.Unknown() }, closed)),
  },
  titled("WorkPayload"),
);

const Reason = Text(workLimits.noteLengthMax);
export const WorkCancellation = Type.Object({ reason: Type.Optional(Reason) }, titled("WorkCancellation"));
/** What an operator knows of the most recent attempt whose outcome is unknown. */
export const WorkProof = Type.Object(
  {
    verdict: Type.Union([Type.Literal("applied"), Type.Literal("not_applied")]),
    /** How it is known. Kept with who says it. */
    note: Reason,
    /** Only this attempt: refused when another is the most recent unknown one. */
    attempt: Type.Optional(Type.Integer({ minimum: 1, maximum: 256 })),
    /** What the attempt would have given, when it was applied. */
    result: Type.Optional(Type.Unknown()),
  },
  titled("WorkProof"),
);

/** A registered version: never changed, retired at most. */
export const WorkVersionView = Type.Object(
  {
    ...version,
    number: Type.Integer({ minimum: 1 }),
    queue: WorkQueue,
    safety: Type.String(),
    policy: facts.policy,
    attempts_max: Count,
    elapsed_max_us: Microseconds,
    lease_max_us: Microseconds,
    plan: Nullable(
      Type.Object(
        { version: Type.String(), offsets_us: Type.Array(Microseconds), circuit_us: Microseconds },
        closed,
      ),
    ),
    registered_at: Timestamp,
    retired_at: Nullable(Timestamp),
    /** Live processes that run it. */
    workers: Count,
    /** Whether the tenant has unfinished items of it that are not suspended: with no worker, they wait for one. */
    waiting: Type.Boolean(),
    /** Whether the tenant has suspended items of it: they wait for somebody to settle them or to put them back. */
    suspended: Type.Boolean(),
  },
  titled("WorkVersionView"),
);
export const RetiredVersion = Type.Object({ ...version, retired_at: Timestamp }, titled("RetiredVersion"));

const TenantName = Type.String({ pattern: "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" });
/** Its name once more: nothing takes it back. */
export const TenantDisabling = Type.Object({ confirm: TenantName }, titled("TenantDisabling"));
export const DisabledTenant = Type.Object(
  { tenant: TenantName, disabled_at: Timestamp },
  titled("DisabledTenant"),
);
export const TenantParams = Type.Object({ tenant: TenantName }, closed);

export type WorkStateName = Static<typeof WorkStateName>;
export type SuspensionReason = Static<typeof SuspensionReason>;
export type WorkItem = Static<typeof WorkItem>;
export type WorkSubmission = Static<typeof WorkSubmission>;
export type WorkBatch = Static<typeof WorkBatch>;
export type WorkReceipt = Static<typeof WorkReceipt>;
export type WorkReceipts = Static<typeof WorkReceipts>;
export type WorkView = Static<typeof WorkView>;
export type WorkDetail = Static<typeof WorkDetail>;
export type WorkPayload = Static<typeof WorkPayload>;
export type WorkProof = Static<typeof WorkProof>;
export type WorkVersionView = Static<typeof WorkVersionView>;
export type RetiredVersion = Static<typeof RetiredVersion>;
export type DisabledTenant = Static<typeof DisabledTenant>;
