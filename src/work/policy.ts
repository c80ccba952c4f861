import { HoldfastError } from "../core/errors.ts";
import { type Instant, instant, type Microseconds, seconds } from "../core/time.ts";
import { refuseUnknown } from "./known-names.ts";
import { type AttemptPlan, checkedPlan, durationMax, later, offsetsMax, slotAt } from "./plan.ts";

/** The stored retry policy of every kind (W3). Planned Work counts its attempts and pauses by its plan instead. */
export interface Retry {
  readonly attempts: number;
  /** The pause after the first failed attempt; it doubles with each, up to `longest`. No chance in it. */
  readonly initial: Microseconds;
  readonly longest: Microseconds;
}

/** When attempts are admitted and how long one may be held (W1). */
export interface Policy {
  readonly kind: "legacy" | "deadline" | "planned";
  readonly retry: Retry;
  /** The plan of planned Work, else null. */
  readonly plan: AttemptPlan | null;
  /** M: no attempt is admitted once this has passed since acceptance. */
  readonly elapsed: Microseconds;
  /** How long the lease of one attempt may be renewed. */
  readonly lease: Microseconds;
}

export const leaseMin: Microseconds = seconds(1);

interface Common {
  readonly elapsed?: Microseconds;
  readonly lease?: Microseconds;
}

const commonNames: ReadonlySet<string> = new Set(["elapsed", "lease"]);
const retryNames: ReadonlySet<string> = new Set([...commonNames, "attempts", "initial", "longest"]);
const planNames: ReadonlySet<string> = new Set(["version", "offsets", "circuit"]);

const day = seconds(86_400);
const anHour = seconds(3_600);

/** The delay is counted from the completion before. No timing fact is stored, and no deadline can be given. */
export function legacy(options: Common & Partial<Retry> = {}): Policy {
  refuseUnknown(options, retryNames, []);
  return checked({ ...common(options), kind: "legacy", retry: retryOf(options), plan: null });
}

/** Retries like legacy Work, until the deadline that each submission brings. */
export function deadlineOnly(options: Common & Partial<Retry> = {}): Policy {
  refuseUnknown(options, retryNames, []);
  return checked({ ...common(options), kind: "deadline", retry: retryOf(options), plan: null });
}

/** Attempts at fixed offsets from acceptance, within the circuit window. A submission may bring a deadline, too. */
export function planned(plan: AttemptPlan, options: Common = {}): Policy {
  refuseUnknown(plan, planNames, []);
  refuseUnknown(options, commonNames, []);
  const { offsets, circuit } = checkedPlan(plan);
  const zero = seconds(0);
  const elapsed = options.elapsed ?? (circuit > day ? circuit : day);
  return checked({
    ...common({ ...options, elapsed }),
    kind: "planned",
    retry: { attempts: offsets.length, initial: zero, longest: zero },
    plan,
  });
}

function common({ elapsed, lease }: Common): Pick<Policy, "elapsed" | "lease"> {
  return { elapsed: elapsed ?? day, lease: lease ?? anHour };
}

function retryOf({ attempts, initial, longest }: Partial<Retry>): Retry {
  const first = initial ?? seconds(1);
  return { attempts: attempts ?? 10, initial: first, longest: longest ?? (first > anHour ? first : anHour) };
}

function checked(policy: Policy): Policy {
  const { retry, plan, elapsed, lease } = policy;
  const wrong = (detail: string) => new HoldfastError("invalid_request", detail);
  if (!Number.isInteger(retry.attempts) || retry.attempts < 1 || retry.attempts > offsetsMax)
    throw wrong("a policy has 1 to 256 attempts");
  if (retry.initial < 0n || retry.longest < retry.initial || retry.longest > durationMax)
    throw wrong("0 <= initial <= longest <= a hundred years");
  if (elapsed < 1n || elapsed > durationMax)
    throw wrong("the longest elapsed time is at most a hundred years");
  if (lease < leaseMin || lease > durationMax)
    throw wrong("the longest lease life is a second to a hundred years");
  if (plan !== null && elapsed < plan.circuit)
    throw wrong("the longest elapsed time is not shorter than the circuit window");
  return policy;
}

/** What timing knows of one item: its policy, A and D. */
export interface Timing {
  readonly policy: Policy;
  readonly accepted: Instant;
  readonly notAfter: Instant | null;
}

export type ClosureReason = "deadline_elapsed" | "circuit_elapsed" | "elapsed_exhausted" | "slots_exhausted";

/** Each bound of admission that the item has, in the order that decides a tie (W10). */
function bounds({ policy, accepted, notAfter }: Timing): readonly (readonly [Instant, ClosureReason])[] {
  return [
    ...(notAfter === null ? [] : [[notAfter, "deadline_elapsed"] as const]),
    ...(policy.plan === null ? [] : [[later(accepted, policy.plan.circuit), "circuit_elapsed"] as const]),
    [later(accepted, policy.elapsed), "elapsed_exhausted"] as const,
  ];
}

/** The exclusive end of admission: the earliest of A+C, A+M and D. */
export function cutoff(timing: Timing): Instant {
  return instant(
    bounds(timing).reduce(
      (least, [at]) => (at < least ? at : least),
      later(timing.accepted, timing.policy.elapsed),
    ),
  );
}

/** Why no attempt is admitted any more, or null. Of several reasons the earliest; a tie goes by their order. */
export function closure(timing: Timing, used: number, now: Instant): ClosureReason | null {
  const end = cutoff(timing);
  if (now >= end) return bounds(timing).find(([at]) => at === end)?.[1] ?? "elapsed_exhausted";
  return used >= timing.policy.retry.attempts ? "slots_exhausted" : null;
}

/** When the attempt after `used` ones is eligible, `now` being the decision on the one before. */
export function nextDue(timing: Timing, used: number, now: Instant): Instant | undefined {
  const { policy, accepted } = timing;
  if (used >= policy.retry.attempts) return undefined;
  if (policy.plan !== null) return slotAt(policy.plan, accepted, used);
  return used === 0 ? accepted : later(now, pause(policy.retry, used));
}

/** After the n-th failed attempt: min(longest, initial × 2^(n−1)), exactly, however large n is. */
export function pause({ initial, longest }: Retry, failed: number): Microseconds {
  const doublings = BigInt(failed - 1);
  if (initial > longest >> doublings) return longest;
  return (initial << doublings) as Microseconds;
}

/** A new attempt is admitted while due <= now < cutoff, and a slot is left (W10). */
export function admits(timing: Timing, used: number, due: Instant, now: Instant): boolean {
  return due <= now && closure(timing, used, now) === null;
}

/** A result of an admitted attempt counts before the deadline, whatever else has closed admission. */
export function accepts({ notAfter }: Timing, now: Instant): boolean {
  return notAfter === null || now < notAfter;
}
