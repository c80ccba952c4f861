import { type Static, Type } from "typebox";
import { Uuid } from "./job.ts";

const closed = { additionalProperties: false } as const;

export const activationLimits = {
  /** Of a stimulus, as JSON. */
  stimulusBytesMax: 65_536,
} as const;

/** Any JSON object, at most 64 KiB of it. */
export const Stimulus = Type.Record(Type.String({ maxLength: 255 }), Type.Unknown());
export const Permission = Type.String({ pattern: "^[a-z][a-z0-9_.:-]{0,62}$" });

/** The body of `POST /v1/sessions/{id}/activations`: admitted once, however often it is sent (S2). */
export const ActivationSubmission = Type.Object(
  {
    /** Made up when left out; then only the Idempotency-Key keeps it from being admitted twice. */
    id: Type.Optional(Uuid),
    stimulus: Stimulus,
  },
  closed,
);

export type Stimulus = Static<typeof Stimulus>;
export type ActivationSubmission = Static<typeof ActivationSubmission>;
