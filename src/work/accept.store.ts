import { HoldfastError } from "../core/errors.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import {
  formatInstant,
  type Instant,
  instant,
  microseconds,
  parseDuration,
  parseInstant,
} from "../core/time.ts";
import type { WorkItem, WorkReceipt } from "../wire/work.ts";
import type { WorkDefinition } from "./define.ts";
import { isTooLarge, namedTooLarge, type SubmitItem } from "./item.ts";
import { durationMax } from "./plan.ts";
import type { Policy } from "./policy.ts";
import type { EffectSafety } from "./safety.ts";
import { prepared } from "./submit.ts";
import { type ReadTermsRow, readTerms } from "./version.sql.ts";
import { submitWork } from "./work.sql.ts";

/**
 * Accept items of a registered version for a caller who does not have its code. The terms are the ones that its
 * workers registered, so that the request's fingerprint is the one that a program would have made (W9); the input is
 * held to being JSON of a bounded size, and to its schema where it runs.
 */
export async function acceptWork(
  tx: Transaction,
  asked: {
    readonly tenant: string;
    readonly name: string;
    readonly version: string;
    readonly items: readonly WorkItem[];
    /** The request is one item, and not a list of them. */
    readonly alone: boolean;
    readonly traceparent: string | null;
  },
): Promise<WorkReceipt[]> {
  const { tenant, name, version, alone, traceparent } = asked;
  const terms = await tx.run(readTerms, { name, version });
  if (terms === undefined) {
    throw new HoldfastError("work_not_registered", `work ${name} version ${version} is not registered`);
  }
  const items = await prepared(definitionOf(terms), asked.items.map(submitItem), { alone });
  const params = { tenant, deployment_epoch: null, name, version, items, traceparent };
  const rows = await tx.run(submitWork, params).catch((error: unknown) => {
    throw isTooLarge(error) ? namedTooLarge(items, alone) : error;
  });
  return rows.map((row) => ({
    id: row.work_id,
    duplicate: row.duplicate,
    accepted_at: formatInstant(instant(BigInt(row.accepted_us))),
  }));
}

function submitItem(item: WorkItem, place: number): SubmitItem<unknown> {
  const { id, key, input, deadline, delay, queue, priority, provider_key, circuit_key } = item;
  return {
    input,
    ...(id === undefined ? {} : { id }),
    ...(key === undefined ? {} : { key }),
    ...(deadline === undefined ? {} : { deadline: deadlineOf(deadline, place) }),
    ...(delay === undefined ? {} : { delay: delayOf(delay, place) }),
    ...(queue === undefined ? {} : { queue }),
    ...(priority === undefined ? {} : { priority: priority as 0 | 1 | 2 | 3 }),
    ...(provider_key === undefined ? {} : { providerKey: provider_key }),
    ...(circuit_key === undefined ? {} : { circuitKey: circuit_key }),
  };
}

/** The shape alone lets a thirteenth month through. What passed before there was a server has passed. */
function deadlineOf(text: string, place: number): Instant {
  const at = parseInstant(text);
  if (formatInstant(at) !== text) throw wrong(place, "deadline", "is no instant of the calendar");
  if (at <= 0n) throw new HoldfastError("deadline_elapsed", "the deadline has passed already");
  return at;
}

function delayOf(text: string, place: number) {
  const delay = parseDuration(text);
  if (delay === undefined || delay > durationMax)
    throw wrong(place, "delay", "is a duration of a hundred years at most");
  return microseconds(delay);
}

function wrong(place: number, field: string, message: string): HoldfastError {
  return new HoldfastError("invalid_request", `item ${place + 1}: the ${field} ${message}`);
}

/** What was registered, without the code. */
function definitionOf(row: ReadTermsRow): WorkDefinition {
  const here = () => Promise.reject(new Error(`${row.name} runs in its workers`));
  return {
    name: row.name,
    version: row.version,
    // A check constraint holds the column to these.
    safety: row.safety as EffectSafety,
    policy: registeredPolicy(row),
    queue: row.queue,
    breaker: null,
    digest: "",
    check: (value) => Promise.resolve(value),
    run: here,
    reconcile: null,
  };
}

export function registeredPolicy(row: ReadTermsRow): Policy {
  const { attempt_plan_version: version, attempt_plan_offsets: offsets } = row;
  const circuit = row.maximum_circuit_microseconds;
  const plan =
    version === null || offsets === null || circuit === null
      ? null
      : { version, offsets: offsets.map(microseconds), circuit: microseconds(circuit) };
  return {
    kind: row.execution_policy_schema === null ? "legacy" : plan === null ? "deadline" : "planned",
    retry: {
      attempts: row.attempts_max,
      initial: microseconds(row.retry_initial_microseconds),
      longest: microseconds(row.retry_longest_microseconds),
    },
    plan,
    elapsed: microseconds(row.elapsed_max_microseconds),
    lease: microseconds(row.lease_max_microseconds),
  };
}
