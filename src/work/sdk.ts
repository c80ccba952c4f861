/** `holdfast/work`: what a program imports to define, submit and run Work. */
export { HoldfastError, isHoldfastError } from "../core/errors.ts";
export {
  type Instant,
  instant,
  type Microseconds,
  microseconds,
  parseDuration,
  seconds,
} from "../core/time.ts";
export { type Boundary, type WorkCounters, type WorkMetric, workCounters } from "./counters.ts";
export {
  type Breaker,
  defineWork,
  type LostAttempt,
  type StandardSchema,
  type Verdict,
  type WorkContext,
  type WorkDeclaration,
  type WorkDefinition,
  WorkFailure,
} from "./define.ts";
export type { Work } from "./handle.ts";
export type { SubmitItem, SubmitOptions } from "./item.ts";
export { type OpenWorkOptions, openWork, type Submission, submit, submitAll } from "./open.ts";
export type { AttemptPlan } from "./plan.ts";
export { deadlineOnly, legacy, type Policy, planned, type Retry } from "./policy.ts";
export type { EffectSafety } from "./safety.ts";
export type { Queryable, Submitted } from "./submit.ts";
export { createWorker, type Worker, type WorkerOptions } from "./worker.ts";
