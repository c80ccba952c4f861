/** What a program declares of an effect: whether it may be tried again when its outcome is unknown (W11). */
export type EffectSafety = "idempotent" | "provider_keyed" | "reconcile_before_retry" | "manual_resolution";

export const effectSafeties: readonly EffectSafety[] = [
  "idempotent",
  "provider_keyed",
  "reconcile_before_retry",
  "manual_resolution",
];

/** What is known of a lost attempt. An expired lease says `unknown`, and never more. */
export type Knowledge = "unknown" | "applied" | "not_applied";

export type AfterLoss =
  /** The next attempt, while admission is open. */
  | "next_attempt"
  /** Out of its line: the version's reconciler decides. */
  | "reconcile"
  /** Out of its line: somebody decides. */
  | "suspend"
  | "succeed";

/** What follows a lost attempt whose permit was open. The same key goes with each attempt of `provider_keyed`. */
export const afterLoss: Readonly<Record<EffectSafety, Readonly<Record<Knowledge, AfterLoss>>>> = {
  idempotent: { unknown: "next_attempt", applied: "succeed", not_applied: "next_attempt" },
  provider_keyed: { unknown: "next_attempt", applied: "succeed", not_applied: "next_attempt" },
  reconcile_before_retry: { unknown: "reconcile", applied: "succeed", not_applied: "next_attempt" },
  manual_resolution: { unknown: "suspend", applied: "succeed", not_applied: "suspend" },
};

/** What it is when nobody may be let in any more. Nothing unknown becomes failed; a proof still settles the truth. */
export const afterClosure: Readonly<
  Record<EffectSafety, Readonly<Record<Knowledge, "suspend" | "reconcile" | "succeed" | "fail">>>
> = {
  idempotent: { unknown: "suspend", applied: "succeed", not_applied: "fail" },
  provider_keyed: { unknown: "suspend", applied: "succeed", not_applied: "fail" },
  reconcile_before_retry: { unknown: "reconcile", applied: "succeed", not_applied: "fail" },
  manual_resolution: { unknown: "suspend", applied: "succeed", not_applied: "fail" },
};

/**
 * Whether whatever code throws says that its attempt failed. Where an effect must not happen twice unnoticed it says
 * nothing of the effect: a connection can break after it. There a WorkFailure alone says that nothing happened.
 */
export const failsByThrowing: Readonly<Record<EffectSafety, boolean>> = {
  idempotent: true,
  provider_keyed: true,
  reconcile_before_retry: false,
  manual_resolution: false,
};

/** Whether a permit may be taken before a handler is free. What must not be lost unknowingly waits for its handler. */
export const permitsAhead: Readonly<Record<EffectSafety, boolean>> = {
  idempotent: true,
  provider_keyed: true,
  reconcile_before_retry: false,
  manual_resolution: false,
};
