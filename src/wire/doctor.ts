import { type Static, Type } from "typebox";

const closed = { additionalProperties: false } as const;
const nullable = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

/** One thing that is wrong with a store. */
export const DoctorFinding = Type.Object(
  {
    check: Type.String(),
    /** `broken`: something that is always true is not. `attention`: it will hurt when nobody does anything. */
    severity: Type.Union([Type.Literal("broken"), Type.Literal("attention")]),
    /** Ids of the promises that it breaks. */
    promises: Type.Array(Type.String()),
    tenant: nullable(Type.String()),
    resource: Type.String(),
    problem: Type.String(),
    next: Type.String(),
  },
  closed,
);

/** What `holdfast doctor` and `GET /v1/doctor` say of a store. */
export const DoctorReport = Type.Object(
  {
    healthy: Type.Boolean(),
    at: Type.String(),
    store: Type.Object(
      {
        installation: Type.String(),
        incarnation: Type.String(),
        schema: Type.Integer(),
        supported: Type.Object({ minimum: Type.Integer(), maximum: Type.Integer() }, closed),
        reader_floor: Type.Integer(),
        writer_floor: Type.Integer(),
      },
      closed,
    ),
    checks: Type.Integer(),
    tenants: Type.Integer(),
    findings: Type.Array(DoctorFinding),
    /** Of Holdfast, seen within the last minute. */
    processes: Type.Array(
      Type.Object(
        {
          id: Type.String(),
          process: Type.String(),
          release: Type.String(),
          started_at: Type.String(),
          seen_at: Type.String(),
        },
        closed,
      ),
    ),
    /** What holds the oldest rows back, oldest first. */
    transactions: Type.Array(
      Type.Object(
        {
          holder: Type.String(),
          /** Milliseconds; null where this login may not see it. */
          age_ms: nullable(Type.Integer()),
          /** Transactions that began since its snapshot. */
          snapshot_age: Type.Integer(),
        },
        closed,
      ),
    ),
    /** The tables with the most dead rows. */
    tables: Type.Array(
      Type.Object(
        {
          name: Type.String(),
          live_rows: Type.Integer(),
          dead_rows: Type.Integer(),
          bytes: Type.Integer(),
          vacuumed_at: nullable(Type.String()),
        },
        closed,
      ),
    ),
  },
  { ...closed, title: "DoctorReport" },
);

export type DoctorFinding = Static<typeof DoctorFinding>;
export type DoctorReport = Static<typeof DoctorReport>;
