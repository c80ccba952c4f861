import { canonicalDigest } from "../core/canonical.ts";
import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import type { Instant, Microseconds } from "../core/time.ts";
import { given, refuseUnknown } from "./known-names.ts";
import type { Policy } from "./policy.ts";
import { type EffectSafety, effectSafeties } from "./safety.ts";
import { nameOf, type Place, pointerTo, refusal } from "./value.ts";

/** The part of the Standard Schema interface (version 1) that is used: any validator that has it fits. */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

export interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** What a handler knows of the attempt that it is. */
export interface WorkContext {
  readonly tenant: string;
  readonly id: string;
  /** 1 for the first. */
  readonly attempt: number;
  /** The same for each attempt: the effect's own key at its provider (`provider_keyed`), else null. */
  readonly providerKey: string | null;
  readonly acceptedAt: Instant;
  readonly deadline: Instant | null;
  /**
   * Aborts at the deadline, when the lease is lost, and when the worker can't wait any longer: stop then. Also, within
   * one renewal of its lease, when somebody asked for its end: `signal.reason.code` is `cancel_requested`, and what the
   * handler then gives or throws still counts.
   */
  readonly signal: AbortSignal;
}

export type Verdict<Result> =
  | { readonly applied: true; readonly result?: Result }
  | { readonly applied: false }
  /** It can't be told now: asked again later. */
  | "unknown";

/** A lost attempt, as its reconciler is asked about it. */
export interface LostAttempt {
  readonly tenant: string;
  readonly id: string;
  readonly attempt: number;
  readonly providerKey: string | null;
  readonly admittedAt: Instant | null;
  readonly signal: AbortSignal;
}

export interface Breaker {
  /** So many failures in a row of one circuit key open its circuit. */
  readonly failures: number;
  /** After this time one item is let through, to see whether it works again. */
  readonly probe: Microseconds;
}

interface Declared<Input, Output, Result> {
  readonly name: string;
  readonly version: string;
  readonly policy: Policy;
  /** Where it waits when a submission names no other queue. */
  readonly queue?: string;
  readonly breaker?: Breaker;
  /** Checks input when it is submitted and again before it runs. */
  readonly input?: StandardSchema<Input, Output>;
  readonly run: (input: Output, context: WorkContext) => Promise<Result> | Result;
}

export type WorkDeclaration<Input, Output, Result> =
  | (Declared<Input, Output, Result> & {
      readonly safety: Exclude<EffectSafety, "reconcile_before_retry">;
    })
  | (Declared<Input, Output, Result> & {
      readonly safety: "reconcile_before_retry";
      /** Says from outside whether a lost attempt's effect has happened. */
      readonly reconcile: (input: Output, lost: LostAttempt) => Promise<Verdict<Result>> | Verdict<Result>;
    });

/** One registered piece of work: what a program declares of it, checked. */
export interface WorkDefinition<Input = unknown, Result = unknown> {
  readonly name: string;
  readonly version: string;
  readonly safety: EffectSafety;
  readonly policy: Policy;
  readonly queue: string;
  readonly breaker: Breaker | null;
  /** Of everything that is registered: the same version always has the same. */
  readonly digest: string;
  /** `invalid_request` with what the validator says, and of which member. */
  readonly check: (value: unknown, at?: Place) => Promise<unknown>;
  /** What it gives may be a promise. It throws when it fails before its first pause. */
  readonly run: (input: unknown, context: WorkContext) => unknown;
  readonly reconcile: ((input: unknown, lost: LostAttempt) => Promise<Verdict<unknown>>) | null;
  /** Never set: these carry the types. */
  readonly accepts?: (input: Input) => void;
  readonly gives?: Result;
}

const namePattern = /^[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?$/;
const versionPattern = /^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$/;
export const queuePattern = /^[a-z0-9](?:[a-z0-9_-]{0,38}[a-z0-9])?$/;

const declaredNames: ReadonlySet<string> = new Set(
  Object.keys({
    name: true,
    version: true,
    safety: true,
    policy: true,
    queue: true,
    breaker: true,
    input: true,
    run: true,
    reconcile: true,
  } satisfies Record<DeclaredName, true>),
);

/**
 * Declare work. Name and version are registered with all that decides its timing and safety, and never change:
 * other timing needs another version (W2).
 */
export function defineWork<Output, Result, Input = Output>(
  declared: WorkDeclaration<Input, Output, Result>,
): WorkDefinition<Input, Result> {
  refuseUnknown(declared, declaredNames, []);
  checkDeclared(declared);
  const { name, version, safety, policy } = declared;
  const queue = declared.queue ?? "default";
  const breaker = declared.breaker ?? null;
  const schema = declared.input ?? undefined;
  const check = (value: unknown, at?: Place) =>
    schema === undefined ? Promise.resolve(value as Output) : validated(schema, value, at);
  const reconcile = declared.safety === "reconcile_before_retry" ? declared.reconcile : null;
  return {
    name,
    version,
    safety,
    policy,
    queue,
    breaker,
    digest: canonicalDigest(registered({ safety, policy, queue, breaker })),
    check,
    // Checked again: what a program accepted under this version may have come from another release of it.
    run:
      schema === undefined
        ? (value, context) => declared.run(value as Output, context)
        : async (value, context) => declared.run(await check(value).catch(refused), context),
    reconcile: reconcile === null ? null : async (value, lost) => reconcile(await check(value), lost),
  };
}

type DeclaredName = keyof Declared<never, never, never> | "safety" | "reconcile";
/** As a program without types may have it. */
type Loose<Name extends string> = { readonly [name in Name]?: unknown };

/** What is wrong is said where the work is declared, and not at its first item. */
function checkDeclared(declared: Loose<DeclaredName>): void {
  const { name, version, safety, policy, queue, input, run, reconcile } = declared;
  if (!isNamedBy(namePattern, name)) throw wrong("work is named by 1 to 100 of a-z, 0-9 and inner . _ -");
  if (!isNamedBy(versionPattern, version))
    throw wrong("a version is a text of 1 to 63 of A-Z, a-z, 0-9 and inner . _ + -");
  if (!effectSafeties.some((one) => one === safety))
    throw refusal(["safety"], `is none of ${effectSafeties.join(", ")}`);
  if (!isPolicy(policy))
    throw refusal(["policy"], "is no policy: give legacy(), deadlineOnly() or planned()");
  if (typeof run !== "function") throw refusal(["run"], "is no function: give what does the work");
  if (safety === "reconcile_before_retry" && typeof reconcile !== "function")
    throw refusal(["reconcile"], "is no function: with reconcile_before_retry it says what has happened");
  if (given(queue) && !isNamedBy(queuePattern, queue))
    throw wrong("a queue is named by 1 to 40 of a-z, 0-9 and inner _ -");
  if (given(input) && !isSchema(input))
    throw refusal(["input"], "is no validator with the Standard Schema interface");
  if (given(declared.breaker)) checkBreaker(declared.breaker);
}

function checkBreaker({ failures, probe }: Loose<keyof Breaker>): void {
  if (typeof failures !== "number" || !Number.isInteger(failures) || failures < 1 || failures > 1000)
    throw wrong("a circuit opens after 1 to 1000 failures");
  if (typeof probe !== "bigint" || probe < 1000n)
    throw wrong("a circuit is probed after a millisecond or more");
}

export const isNamedBy = (pattern: RegExp, value: unknown) =>
  typeof value === "string" && pattern.test(value);

function isPolicy(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const { kind, retry, elapsed, lease }: Loose<keyof Policy> = value;
  return (
    (kind === "legacy" || kind === "deadline" || kind === "planned") &&
    typeof retry === "object" &&
    retry !== null &&
    typeof elapsed === "bigint" &&
    typeof lease === "bigint"
  );
}

/** Some validators are functions. */
function isSchema(value: unknown): boolean {
  if ((typeof value !== "object" && typeof value !== "function") || value === null) return false;
  const standard: unknown = "~standard" in value ? value["~standard"] : null;
  return (
    typeof standard === "object" &&
    standard !== null &&
    "validate" in standard &&
    typeof standard.validate === "function"
  );
}

export function isDefinition(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return false;
  const { digest, check, run }: Loose<keyof WorkDefinition> = value;
  return typeof digest === "string" && typeof check === "function" && typeof run === "function";
}

function registered({
  safety,
  policy,
  queue,
  breaker,
}: Pick<WorkDefinition, "safety" | "policy" | "queue" | "breaker">) {
  const { kind, retry, plan, elapsed, lease } = policy;
  return {
    safety,
    queue,
    kind,
    retry: { attempts: retry.attempts, initial: String(retry.initial), longest: String(retry.longest) },
    plan:
      plan === null
        ? null
        : { version: plan.version, offsets: plan.offsets.map(String), circuit: String(plan.circuit) },
    elapsed: String(elapsed),
    lease: String(lease),
    breaker: breaker === null ? null : { failures: breaker.failures, probe: String(breaker.probe) },
  };
}

async function validated<Input, Output>(
  schema: StandardSchema<Input, Output>,
  value: unknown,
  at: Place = ["input"],
): Promise<Output> {
  const result = await schema["~standard"].validate(value);
  if (result.issues === undefined) return result.value;
  const fields = result.issues.slice(0, 20).map(({ message, path = [] }) => {
    const steps = path.map((step) => stepOf(typeof step === "object" ? step.key : step));
    return { place: [...at, ...steps], message };
  });
  const [first] = fields;
  throw new HoldfastError(
    "invalid_request",
    `${nameOf(first?.place ?? at)}: ${first?.message ?? "is not valid"}`,
    {
      fields: fields.map(({ place, message }) => ({ pointer: pointerTo(place), message })),
    },
  );
}

const stepOf = (key: PropertyKey) => (typeof key === "number" ? key : String(key));

/** Before the code runs: nothing has happened. Input that does not fit its schema will not fit the next time either. */
function refused(error: unknown): never {
  if (isHoldfastError(error, "invalid_request")) throw new WorkFailure(error.code, error.message);
  const message = error instanceof Error ? error.message : "the validator threw something";
  throw new WorkFailure("handler_failed", message, { retry: true });
}

function wrong(detail: string): HoldfastError {
  return new HoldfastError("invalid_request", detail);
}

/**
 * Fails the attempt, and says that its effect has not happened: no other one is tried, or with `retry` the next one when
 * the policy has it. Whatever else is thrown fails an attempt that may be repeated (`idempotent`, `provider_keyed`);
 * of the two strict classes it leaves the outcome unknown.
 */
export class WorkFailure extends Error {
  override readonly name = "WorkFailure";
  readonly code: string;
  readonly retry: boolean;

  /** `code` is stored, 1 to 63 characters; the message is, too, so it should hold no payload. */
  constructor(code: string, message: string, { retry = false }: { readonly retry?: boolean } = {}) {
    super(message);
    this.code = code;
    this.retry = retry;
  }
}
