import { type Static, Type } from "typebox";
import {
  Duration,
  ImageName,
  jobLimits,
  Labels,
  Name,
  PhaseSpec,
  SecretKey,
  Sha256,
  Timestamp,
  Uuid,
} from "./job.ts";

const closed = { additionalProperties: false } as const;
/** The title names the shape in the OpenAPI document. */
const titled = (title: string) => ({ ...closed, title });
const Nullable = <T extends Type.TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

export const agentLimits = {
  timeoutDefault: "10m",
  /** Of one try: three hours, as for every sandbox. */
  timeoutMicrosecondsMax: jobLimits.deadlineMicrosecondsMax,
  triesDefault: 3,
  triesMax: 5,
  destinationsMax: 8,
  specBytesMax: 65_536,
} as const;

/** Where replies go, signed with the first of the secrets; the second is one that receivers may still know. */
export const Destination = Type.Object(
  {
    name: Name,
    url: Type.String({ minLength: 1, maxLength: 2048, pattern: "^https?://[^\\u0000-\\u0020]+$" }),
    secrets: Type.Optional(
      Type.Array(Type.Object({ name: Name, key: SecretKey }, closed), { minItems: 1, maxItems: 2 }),
    ),
  },
  titled("Destination"),
);

/** The template of an agent. Every change of it is a new version; a version never changes. */
export const AgentSpec = Type.Object(
  {
    /** What runs in the sandbox, once for each try: see docs/reference/agent-protocol.md. */
    command: PhaseSpec.properties.command,
    /** Which of the installation's runtimes; its default when left out. */
    runtime: Type.Optional(Name),
    image: Type.Optional(ImageName),
    env: PhaseSpec.properties.env,
    secrets: PhaseSpec.properties.secrets,
    limits: PhaseSpec.properties.limits,
    grace: Type.Optional(Duration),
    /** For one try, from its sandbox's start. */
    timeout: Type.Optional(Duration),
    /** How often an activation is tried from the unchanged head before it has failed. */
    tries: Type.Optional(Type.Integer({ minimum: 1, maximum: agentLimits.triesMax })),
    /** None: replies wait in the built-in inbox. */
    destinations: Type.Optional(Type.Array(Destination, { maxItems: agentLimits.destinationsMax })),
  },
  titled("AgentSpec"),
);

/** An agent file, and the body of `POST /v1/agents`. */
export const AgentSubmission = Type.Object(
  {
    apiVersion: Type.Literal("holdfast/v1"),
    kind: Type.Literal("Agent"),
    metadata: Type.Object({ name: Name, labels: Type.Optional(Labels) }, closed),
    spec: AgentSpec,
  },
  titled("AgentSubmission"),
);

/** A merge patch for labels; `spec`, where it is given, is the whole new template. */
export const AgentPatch = Type.Object(
  {
    labels: Type.Optional(
      Type.Record(
        Type.String({ pattern: "^[A-Za-z0-9]([A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?$" }),
        Nullable(Type.String({ maxLength: 255, pattern: "^[^\\u0000]*$" })),
        { maxProperties: jobLimits.labelsMax, additionalProperties: false },
      ),
    ),
    spec: Type.Optional(AgentSpec),
  },
  { ...titled("AgentPatch"), minProperties: 1 },
);

/** A name that sessions are begun with, and its newest template. */
export const AgentView = Type.Object(
  {
    id: Uuid,
    name: Name,
    labels: Labels,
    /** Of the template: 1, 2, 3 … */
    version: Type.Integer({ minimum: 1 }),
    spec: AgentSpec,
    spec_digest: Sha256,
    resource_version: Type.String({ pattern: "^[0-9]+$" }),
    created_at: Timestamp,
    updated_at: Timestamp,
    deleted_at: Nullable(Timestamp),
  },
  titled("AgentView"),
);

/** One version of its template, which never changes. */
export const AgentTemplateView = Type.Object(
  { agent_id: Uuid, version: Type.Integer({ minimum: 1 }), spec: AgentSpec },
  titled("AgentTemplateView"),
);

export type AgentTemplateView = Static<typeof AgentTemplateView>;
export type Destination = Static<typeof Destination>;
export type AgentSpec = Static<typeof AgentSpec>;
export type AgentSubmission = Static<typeof AgentSubmission>;
export type AgentPatch = Static<typeof AgentPatch>;
export type AgentView = Static<typeof AgentView>;
