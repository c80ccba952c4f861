import { type Static, Type } from "typebox";
import { Timestamp, Uuid } from "./job.ts";

const closed = { additionalProperties: false } as const;
const Nullable = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

/** The destination that is always there: what is for it is read by clients and called by nobody. */
export const inboxName = "inbox";

export const DeliveryState = Type.Union(
  [Type.Literal("pending"), Type.Literal("delivered"), Type.Literal("dead")],
  { title: "DeliveryState" },
);
export const DestinationName = Type.String({ pattern: "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" });

const facts = {
  /** The same over all tries: receivers know duplicates by it. */
  id: Uuid,
  session_id: Uuid,
  /** What is told of one session to one destination is told in this order. */
  ordinal: Type.Integer({ minimum: 0 }),
  destination: Type.String(),
  /** What it tells of. */
  source: Type.Object({ kind: Type.String(), id: Uuid }, closed),
  /** `dead`: not tried any more, unless somebody has it delivered again. */
  state: DeliveryState,
  tries: Type.Integer({ minimum: 0 }),
  tried_at: Nullable(Timestamp),
  /** Null while it is pending: it is being delivered, or waits for an earlier one of its session. */
  next_try_at: Nullable(Timestamp),
  last_error: Nullable(Type.String()),
  /** What the destination answered last. */
  last_status: Nullable(Type.Integer()),
  resource_version: Type.String({ pattern: "^[0-9]+$" }),
  created_at: Timestamp,
  settled_at: Nullable(Timestamp),
} as const;

/** A reply on its way to one destination, or in the inbox. */
export const DeliveryView = Type.Object(facts, { ...closed, title: "DeliveryView" });

/** The same, and what is told. */
export const DeliveryDetail = Type.Object(
  { ...facts, payload: Type.Unknown() },
  { ...closed, title: "DeliveryDetail" },
);

export type DeliveryState = Static<typeof DeliveryState>;
export type DeliveryView = Static<typeof DeliveryView>;
export type DeliveryDetail = Static<typeof DeliveryDetail>;
