import { type Static, Type } from "typebox";
import { Timestamp, Uuid } from "./job.ts";

const closed = { additionalProperties: false } as const;
/** The title names the shape in the OpenAPI document. */
const titled = (title: string) => ({ ...closed, title });
const Nullable = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const Count = Type.Integer({ minimum: 0 });
const Number64 = Type.String({ pattern: "^[0-9]+$" });

/** Who attends to something, or that nobody does. One row for each live thing. */
export const LeaseView = Type.Object(
  {
    /** Of what: `execution` of an attempt, `session`, `work` … */
    kind: Type.String(),
    resource_id: Uuid,
    queue: Type.String(),
    priority: Type.Integer({ minimum: 0, maximum: 3 }),
    /** The incarnation that holds it; null while nobody does. */
    holder: Nullable(Uuid),
    /** Grows with each claim: what presents an older one is refused. */
    epoch: Number64,
    due_at: Timestamp,
    /** Held: when it ends unless it is renewed. Else when it may be taken. */
    wake_at: Timestamp,
    /** Whether it could be taken at the time of the look. */
    due: Type.Boolean(),
  },
  titled("LeaseView"),
);

/** A tenant at a glance. */
export const OverviewView = Type.Object(
  {
    at: Timestamp,
    jobs: Type.Object(
      {
        waiting: Count,
        oldest_waiting_at: Nullable(Timestamp),
        running: Count,
        /** Submitted within the last day, by what has become of them. */
        recent: Type.Object({ succeeded: Count, failed: Count, cancelled: Count }, closed),
      },
      closed,
    ),
    /** Where attempts run, and how many of this tenant do. */
    pools: Type.Array(Type.Object({ pool: Type.String(), slots: Count, running: Count }, closed)),
    /** Turns of sessions that are not over; `waiting`: for somebody to do something. */
    activations: Type.Object({ queued: Count, running: Count, waiting: Count }, closed),
    deliveries: Type.Object({ pending: Count, dead: Count }, closed),
    /** Work that is not over, by state. */
    work: Type.Array(Type.Object({ state: Type.String(), count: Count }, closed)),
    /** Sandboxes whose stop can't be proven. */
    unproven: Count,
    leases: Type.Object(
      {
        held: Count,
        /** Due and nobody's; waiting jobs are no part of it. */
        due: Count,
        /** There are more of a kind than a glance looks at: `held` and `due` may be more, and `oldest` older. */
        partial: Type.Boolean(),
        oldest: Nullable(LeaseView),
      },
      closed,
    ),
    /** Of the gateway that answers. */
    loops: Type.Array(
      Type.Object({ name: Type.String(), progressing: Type.Boolean(), detail: Type.String() }, closed),
    ),
  },
  titled("OverviewView"),
);

/** The installation: its schema, and the processes that use it. */
export const SystemView = Type.Object(
  {
    at: Timestamp,
    installation: Type.String(),
    incarnation: Uuid,
    created_at: Timestamp,
    deployment_epoch: Number64,
    schema: Type.Object(
      {
        version: Count,
        supported: Type.Object({ minimum: Count, maximum: Count }, closed),
        reader_floor: Count,
        writer_floor: Count,
        migrations: Type.Array(
          Type.Object(
            { version: Count, name: Type.String(), checksum: Type.String(), applied_at: Timestamp },
            closed,
          ),
        ),
      },
      closed,
    ),
    /** Runs of processes, newest first. */
    incarnations: Type.Array(
      Type.Object(
        {
          id: Uuid,
          process: Type.String(),
          release: Type.String(),
          schema_minimum: Count,
          schema_maximum: Count,
          deployment_epoch: Number64,
          started_at: Timestamp,
          seen_at: Timestamp,
          ended_at: Nullable(Timestamp),
          /** Not ended, and seen within a minute. */
          alive: Type.Boolean(),
          /** Leases that it holds now, over all tenants; an estimate when very much Work waits. */
          leases: Count,
        },
        closed,
      ),
    ),
    /** Slots over all tenants. */
    pools: Type.Array(
      Type.Object({ pool: Type.String(), slots: Count, used: Count, waiting: Count }, closed),
    ),
    changes: Type.Object({ position: Number64, floor: Number64 }, closed),
  },
  titled("SystemView"),
);

export type LeaseView = Static<typeof LeaseView>;
export type OverviewView = Static<typeof OverviewView>;
export type SystemView = Static<typeof SystemView>;
