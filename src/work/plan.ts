import { HoldfastError } from "../core/errors.ts";
import { type Instant, instant, type Microseconds, microseconds } from "../core/time.ts";

/** When attempts of planned Work are eligible: offsets from its acceptance (W1, W10). */
export interface AttemptPlan {
  /** Names the plan to people and in fingerprints, 1 to 100 characters. */
  readonly version: string;
  /** 1 to 256; the first is 0, each later than the one before. */
  readonly offsets: readonly Microseconds[];
  /** The circuit window: no attempt is admitted once it has passed. Longer than the last offset. */
  readonly circuit: Microseconds;
}

/** A hundred years of 365.25 days: beyond it neither a timestamp nor a program means anything. */
export const durationMax: Microseconds = microseconds(3_155_760_000_000_000n);
export const offsetsMax = 256;
/** The last instant that RFC 3339 can write. */
export const lastInstant: Instant = instant(253_402_300_799_999_999n);

/** The plan, or `invalid_request` with what is wrong. The database holds the same by named constraints. */
export function checkedPlan(plan: AttemptPlan): AttemptPlan {
  const { version, offsets, circuit } = plan;
  if (version.length < 1 || version.length > 100) throw invalid("a plan's version has 1 to 100 characters");
  if (offsets.length < 1 || offsets.length > offsetsMax) throw invalid("a plan has 1 to 256 offsets");
  if (offsets[0] !== 0n) throw invalid("a plan's first offset is 0");
  for (const [place, offset] of offsets.entries()) {
    const before = offsets[place - 1];
    if (before !== undefined && offset <= before) throw invalid("a plan's offsets are strictly increasing");
  }
  if (circuit <= (offsets.at(-1) ?? 0n))
    throw invalid("a plan's circuit window is longer than its last offset");
  if (circuit > durationMax) throw invalid("a plan's circuit window is at most a hundred years");
  return plan;
}

/** When the attempt after `used` ones is eligible; undefined when the plan has no slot left. */
export function slotAt(plan: AttemptPlan, accepted: Instant, used: number): Instant | undefined {
  const offset = plan.offsets[used];
  return offset === undefined ? undefined : later(accepted, offset);
}

/** An instant and a duration, to the microsecond, and never beyond what can be stored. */
export function later(at: Instant, by: bigint): Instant {
  const sum = at + by;
  return instant(sum > lastInstant ? lastInstant : sum);
}

function invalid(detail: string): HoldfastError {
  return new HoldfastError("invalid_request", detail);
}
