import { type Static, Type } from "typebox";
import { agentProtocolLimits } from "./agent-protocol.ts";
import { Blocked, Failure, Sha256, Timestamp, Uuid } from "./job.ts";
import { Permission } from "./session.ts";

const closed = { additionalProperties: false } as const;
/** The title names the shape in the OpenAPI document. */
const titled = (title: string) => ({ ...closed, title });
const Nullable = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

export const activationLimits = {
  /** Of a stimulus, as JSON. */
  stimulusBytesMax: 65_536,
} as const;

/** Any JSON object, at most 64 KiB of it. */
export const Stimulus = Type.Record(Type.String(), Type.Unknown());

/** The body of `POST /v1/sessions/{id}/activations`: admitted once, however often it is sent (S2). */
export const ActivationSubmission = Type.Object(
  {
    /** Made up when left out; then only the Idempotency-Key keeps it from being admitted twice. */
    id: Type.Optional(Uuid),
    stimulus: Stimulus,
  },
  titled("ActivationSubmission"),
);

export const ActivationState = Type.Union([
  Type.Literal("queued"),
  Type.Literal("running"),
  Type.Literal("committing"),
  Type.Literal("waiting"),
  Type.Literal("committed"),
  Type.Literal("failed"),
  Type.Literal("cancelled"),
]);

const Reason = Type.String({ minLength: 1, maxLength: agentProtocolLimits.reasonCharactersMax });
/** What has to happen before the agent can go on: a permission is granted, or somebody says to try again. */
export const RequiredActionView = Type.Union([
  Type.Object({ type: Type.Literal("grant_permission"), permission: Permission, reason: Reason }, closed),
  Type.Object({ type: Type.Literal("retry_activation"), reason: Reason }, closed),
]);

/** One turn of a session. */
export const ActivationView = Type.Object(
  {
    id: Uuid,
    session_id: Uuid,
    /** Its place in the session: 1, 2, 3 … */
    ordinal: Type.Integer({ minimum: 1 }),
    state: ActivationState,
    stimulus: Stimulus,
    stimulus_digest: Sha256,
    resource_version: Type.String({ pattern: "^[0-9]+$" }),
    /** How often it was begun. */
    runs: Type.Integer({ minimum: 0 }),
    /** The revision that the present or last run began from. */
    base_revision: Nullable(Type.Integer({ minimum: 0 })),
    agent_version: Nullable(Type.Integer({ minimum: 1 })),
    /** What was committed; null before. */
    reply: Nullable(Type.Record(Type.String(), Type.Unknown())),
    required_action: Nullable(RequiredActionView),
    /** The revision that it committed. */
    revision: Nullable(Type.Integer({ minimum: 1 })),
    failure: Nullable(Failure),
    /** Why the run before the present one ended. */
    last_failure: Nullable(Failure),
    admitted_at: Timestamp,
    started_at: Nullable(Timestamp),
    retry_at: Nullable(Timestamp),
    finished_at: Nullable(Timestamp),
    cancel_requested_at: Nullable(Timestamp),
    cancel_reason: Nullable(Type.String()),
    blocked: Type.Optional(Blocked),
  },
  titled("ActivationView"),
);

export type Stimulus = Static<typeof Stimulus>;
export type ActivationSubmission = Static<typeof ActivationSubmission>;
export type ActivationState = Static<typeof ActivationState>;
export type ActivationView = Static<typeof ActivationView>;
