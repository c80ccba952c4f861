import { HoldfastError } from "../core/errors.ts";
import { isUuid, uuidv7 } from "../core/ids.ts";
import { encodeParameters } from "../core/postgres/codecs.ts";
import { isRetryable, translate } from "../core/postgres/sqlstate.ts";
import { formatInstant, type Instant, instant, type Microseconds, seconds } from "../core/time.ts";
import type { WorkDefinition } from "./define.ts";
import { fingerprint } from "./fingerprint.ts";
import { durationMax, lastInstant } from "./plan.ts";
import { submitWork } from "./work.sql.ts";

/** What may be said of one item beside its input. */
export interface SubmitOptions {
  /** The command's id, and the item's: a UUID. Made when it is left out. */
  readonly id?: string;
  /** The same key again, with the same request, resolves to the same item. */
  readonly key?: string;
  /** D: no attempt begins, and no success counts, from then on. Never extended. Not for legacy work. */
  readonly deadline?: Instant;
  /** Eligible only after this pause. A plan counts from acceptance and takes none. */
  readonly delay?: Microseconds;
  readonly queue?: string;
  /** 0 is the most urgent; 2 when left out. */
  readonly priority?: 0 | 1 | 2 | 3;
  /** The effect's key at its provider, for `provider_keyed`; the item's id when left out. */
  readonly providerKey?: string;
  /** Items of one key share a circuit breaker, when their version has one. */
  readonly circuitKey?: string;
}

export interface SubmitItem<Input> extends SubmitOptions {
  readonly input: Input;
}

/** What an identity resolved to. */
export interface Submitted {
  readonly id: string;
  /** It was accepted before, by an identical request. */
  readonly duplicate: boolean;
  readonly acceptedAt: Instant;
}

/** Any connection or pool of the `pg` driver, or what looks like one. */
export interface Queryable {
  query(query: {
    readonly text: string;
    readonly values: unknown[];
    readonly name?: string;
  }): Promise<{ readonly rows: unknown[] }>;
}

/** Items of one call of the function: their change is one row, which is bounded. */
export const batchMax = 500;
const triesMax = 6;

interface Row {
  readonly work_id: string;
  readonly duplicate: boolean;
  readonly accepted_us: string;
}

/** What one call sends, checked and with its fingerprints. */
export async function prepared<Input>(
  work: WorkDefinition<Input>,
  items: readonly SubmitItem<Input>[],
): Promise<unknown[]> {
  const planned = work.policy.kind === "planned";
  return Promise.all(
    items.map(async (item) => {
      await work.check(item.input);
      if (item.id !== undefined && !isUuid(item.id)) throw wrong("an item's id is a UUID, in lower case");
      if (work.policy.kind === "legacy" && item.deadline !== undefined)
        throw wrong("legacy work takes no deadline");
      if (work.policy.kind === "deadline" && item.deadline === undefined)
        throw wrong("this work needs a deadline");
      if (item.deadline !== undefined && (item.deadline < 0n || item.deadline > lastInstant))
        throw wrong("a deadline lies between the years 1970 and 9999");
      const delay = item.delay ?? seconds(0);
      if (delay < 0n || (planned && delay > 0n))
        throw wrong("a delay is not negative, and planned work takes none");
      if (delay > durationMax) throw wrong("a delay is at most a hundred years");
      const request = {
        name: work.name,
        version: work.version,
        input: item.input,
        queue: item.queue ?? null,
        priority: item.priority ?? 2,
        delay,
        providerKey: item.providerKey ?? null,
        circuitKey: item.circuitKey ?? null,
        notAfter: item.deadline ?? null,
      };
      return {
        id: item.id ?? uuidv7(),
        key: item.key,
        fingerprint: fingerprint(request, work.policy),
        input: item.input,
        queue: item.queue,
        priority: item.priority,
        delay: delay === 0n ? undefined : String(delay),
        provider_key: item.providerKey,
        circuit_key: item.circuitKey,
        not_after: item.deadline === undefined ? undefined : formatInstant(item.deadline),
      };
    }),
  );
}

/** One call of the function on a connection, in whatever transaction that is in. */
export async function submitOn(
  on: Queryable,
  call: {
    readonly tenant: string;
    readonly deploymentEpoch: bigint | null;
    readonly name: string;
    readonly version: string;
    readonly items: readonly unknown[];
    readonly traceparent?: string | null;
    /** A connection of our own keeps the statement prepared. */
    readonly named: boolean;
  },
): Promise<Submitted[]> {
  const { text, name } = submitWork;
  const values = encodeParameters(submitWork, {
    tenant: call.tenant,
    deployment_epoch: call.deploymentEpoch,
    name: call.name,
    version: call.version,
    items: call.items,
    traceparent: call.traceparent ?? null,
  });
  const { rows } = await on.query(call.named ? { name, text, values } : { text, values });
  return (rows as Row[]).map((row) => ({
    id: row.work_id,
    duplicate: row.duplicate,
    acceptedAt: instant(BigInt(row.accepted_us)),
  }));
}

/** In a transaction of its own; what lost against another transaction is sent again. */
export async function submitAlone(
  on: Queryable,
  call: Omit<Parameters<typeof submitOn>[1], "named">,
): Promise<Submitted[]> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await submitOn(on, { ...call, named: true });
    } catch (error) {
      if (!isRetryable(error) || tries === triesMax) throw translate(error);
    }
  }
}

function wrong(detail: string): HoldfastError {
  return new HoldfastError("invalid_request", detail);
}
