import { type Static, Type } from "typebox";
import { Timestamp, Uuid } from "./job.ts";

const Nullable = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

/** A mutation as the audit keeps it: who, what, when and what came of it. No payload. */
export const CommandView = Type.Object(
  {
    id: Uuid,
    principal_id: Uuid,
    principal: Type.String(),
    operation: Type.String(),
    /** The path of the resource that it was about. */
    target: Type.String(),
    idempotency_key: Nullable(Type.String()),
    request_id: Nullable(Type.String()),
    traceparent: Nullable(Type.String()),
    at: Timestamp,
    /** The status of the answer: commands that were refused did nothing and leave nothing. */
    status: Type.Integer({ minimum: 200, maximum: 299 }),
  },
  { additionalProperties: false, title: "CommandView" },
);

export type CommandView = Static<typeof CommandView>;
