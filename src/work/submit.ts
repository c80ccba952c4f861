import { uuidv7 } from "../core/ids.ts";
import { encodeParameters } from "../core/postgres/codecs.ts";
import { isRetryable, translate } from "../core/postgres/sqlstate.ts";
import { formatInstant, type Instant, instant, seconds } from "../core/time.ts";
import type { WorkDefinition } from "./define.ts";
import { fingerprint } from "./fingerprint.ts";
import { checkItem, placeOf, type SubmitItem } from "./item.ts";
import { kept } from "./value.ts";
import { submitWork } from "./work.sql.ts";

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

/** One item as the function takes it. */
export interface PreparedItem extends Readonly<Record<string, unknown>> {
  readonly input: unknown;
}

/**
 * What one call sends, checked and with its fingerprints. What is wrong is named by its place: `items[2].input.amount`,
 * or `input.amount` in the call with one item (`alone`).
 */
export async function prepared<Input>(
  work: WorkDefinition<Input>,
  items: readonly SubmitItem<Input>[],
  { alone = false }: { readonly alone?: boolean } = {},
): Promise<PreparedItem[]> {
  return Promise.all(
    items.map(async (item, place) => {
      const at = placeOf(place, alone);
      checkItem(item, work.policy, at);
      const inputAt = [...at, "input"];
      // From here on it is what its handler will get: checked as that, too.
      const input = kept(item.input, inputAt);
      await work.check(input, inputAt);
      const request = {
        name: work.name,
        version: work.version,
        input,
        queue: item.queue ?? null,
        priority: item.priority ?? 2,
        delay: item.delay ?? seconds(0),
        providerKey: item.providerKey ?? null,
        circuitKey: item.circuitKey ?? null,
        notAfter: item.deadline ?? null,
      };
      return {
        id: item.id ?? uuidv7(),
        key: item.key,
        fingerprint: fingerprint(request, work.policy),
        input,
        queue: item.queue,
        priority: item.priority,
        delay: request.delay === 0n ? undefined : String(request.delay),
        provider_key: item.providerKey,
        circuit_key: item.circuitKey,
        not_after: request.notAfter === null ? undefined : formatInstant(request.notAfter),
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
