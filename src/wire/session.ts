import { type Static, Type } from "typebox";
import { AgentPatch } from "./agent.ts";
import { Labels, Name, Sha256, Timestamp, Uuid } from "./job.ts";

const closed = { additionalProperties: false } as const;

/** What a person wants of it: `active` runs activations, `suspended` lets them wait, `closed` takes no more. */
export const DesiredState = Type.Union([
  Type.Literal("active"),
  Type.Literal("suspended"),
  Type.Literal("closed"),
]);

const AgentVersion = Type.Integer({ minimum: 1, maximum: 2_147_483_647 });

/** The body of `POST /v1/sessions`. */
export const SessionSubmission = Type.Object(
  {
    agent: Name,
    /** The newest when left out. */
    agent_version: Type.Optional(AgentVersion),
    labels: Type.Optional(Labels),
  },
  closed,
);

/** Needs If-Match. Labels are a merge patch. */
export const SessionPatch = Type.Object(
  {
    labels: AgentPatch.properties.labels,
    desired_state: Type.Optional(DesiredState),
    agent_version: Type.Optional(AgentVersion),
  },
  { ...closed, minProperties: 1 },
);

/** The committed state that the next activation begins with. */
export const RevisionView = Type.Object(
  {
    session_id: Uuid,
    /** 1, 2, 3 …: each checkpoint moved the head by one. */
    revision: Type.Integer({ minimum: 1 }),
    activation_id: Uuid,
    bytes: Type.Integer({ minimum: 0 }),
    sha256: Sha256,
    committed_at: Timestamp,
  },
  closed,
);

export type DesiredState = Static<typeof DesiredState>;
export type SessionSubmission = Static<typeof SessionSubmission>;
export type SessionPatch = Static<typeof SessionPatch>;
export type RevisionView = Static<typeof RevisionView>;
