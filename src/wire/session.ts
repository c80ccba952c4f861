import { type Static, Type } from "typebox";
import { AgentPatch } from "./agent.ts";
import { Blocked, Labels, Name, Sha256, Timestamp, Uuid } from "./job.ts";

const closed = { additionalProperties: false } as const;
/** The title names the shape in the OpenAPI document. */
const titled = (title: string) => ({ ...closed, title });
const Nullable = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const Number64 = Type.String({ pattern: "^[0-9]+$" });

/** What a person can want of it: `active` runs activations, `suspended` lets them wait, `closed` takes no more. */
export const DesiredState = Type.Union([
  Type.Literal("active"),
  Type.Literal("suspended"),
  Type.Literal("closed"),
]);

/** What was observed of it; `pending`: nothing yet, `waiting`: for somebody to do what an activation needs. */
export const SessionState = Type.Union([
  Type.Literal("pending"),
  Type.Literal("idle"),
  Type.Literal("running"),
  Type.Literal("waiting"),
  Type.Literal("suspended"),
  Type.Literal("closed"),
  Type.Literal("deleted"),
]);

const AgentVersion = Type.Integer({ minimum: 1, maximum: 2_147_483_647 });
const RevisionNumber = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });
export const Permission = Type.String({ pattern: "^[a-z][a-z0-9_.:-]{0,62}$" });

/** The body of `POST /v1/sessions`. */
export const SessionSubmission = Type.Object(
  {
    /** Its name. */
    agent: Name,
    /** The newest when left out. */
    agent_version: Type.Optional(AgentVersion),
    labels: Type.Optional(Labels),
    /** Begin as a copy of what another session of the tenant had committed then. */
    from: Type.Optional(Type.Object({ session_id: Uuid, revision: RevisionNumber }, closed)),
  },
  titled("SessionSubmission"),
);

/** Needs If-Match. Labels are a merge patch. */
export const SessionPatch = Type.Object(
  {
    labels: AgentPatch.properties.labels,
    desired_state: Type.Optional(DesiredState),
    agent_version: Type.Optional(AgentVersion),
  },
  { ...titled("SessionPatch"), minProperties: 1 },
);

export const PermissionGrant = Type.Object({ permission: Permission }, titled("PermissionGrant"));

export const SessionView = Type.Object(
  {
    id: Uuid,
    agent_id: Uuid,
    agent: Name,
    /** The template that runs begin with from now on. */
    agent_version: Type.Integer({ minimum: 1 }),
    labels: Labels,
    /** Deleted is a desired state that nobody asks for by name: `DELETE` does. */
    desired_state: Type.Union([...DesiredState.anyOf, Type.Literal("deleted")]),
    permissions: Type.Array(Type.String()),
    /** Counts the changes of what is wanted, and says which of them was observed. */
    generation: Number64,
    observed_generation: Number64,
    state: SessionState,
    /** 0 before anything was committed. */
    head_revision: Type.Integer({ minimum: 0 }),
    resource_version: Number64,
    created_at: Timestamp,
    updated_at: Timestamp,
    deleted_at: Nullable(Timestamp),
    blocked: Type.Optional(Blocked),
  },
  titled("SessionView"),
);

/** What an activation committed. A revision never changes. */
export const RevisionView = Type.Object(
  {
    session_id: Uuid,
    /** 1, 2, 3 …: each checkpoint moved the head by one. */
    revision: RevisionNumber,
    /** Null where a copy of another session begins. */
    activation_id: Nullable(Uuid),
    /** Null while the session keeps nothing. */
    bundle: Nullable(Type.Object({ bytes: Type.Integer({ minimum: 1 }), sha256: Sha256 }, closed)),
    from: Nullable(Type.Object({ session_id: Uuid, revision: RevisionNumber }, closed)),
    committed_at: Timestamp,
    removed_at: Nullable(Timestamp),
  },
  titled("RevisionView"),
);

export type DesiredState = Static<typeof DesiredState>;
export type SessionState = Static<typeof SessionState>;
export type SessionSubmission = Static<typeof SessionSubmission>;
export type SessionPatch = Static<typeof SessionPatch>;
export type PermissionGrant = Static<typeof PermissionGrant>;
export type SessionView = Static<typeof SessionView>;
export type RevisionView = Static<typeof RevisionView>;
