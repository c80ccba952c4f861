import { type ReadPositionsRow, readPositions } from "./change.sql.ts";
import { readCounter } from "./change.store.ts";
import { brandId, type TenantId } from "./ids.ts";
import type { Lookout } from "./lookout.ts";
import { startLoop } from "./loop.ts";
import { type Database, runAlone } from "./postgres/transition.ts";

/** That something changed, and where: no payload. Bodies are read per tenant, with `readChanges`. */
export interface ChangePosition {
  readonly position: bigint;
  readonly tenant: TenantId;
  readonly kind: string;
  readonly root: string;
}

export interface Interest {
  readonly tenant: TenantId;
  /** Left out or null: everything of the tenant. */
  readonly root?: string | null;
}

type Listener = (positions: readonly ChangePosition[]) => void;

/** The one reader of a process: however many watchers it has, each position is read once. */
export interface ChangeReader {
  /**
   * The positions after this moment, in order, each batch once. Who needs older ones reads them from the log
   * up to `position()` after subscribing; then nothing is missed between the two. Returns what ends it.
   */
  subscribe(interest: Interest, listener: Listener): () => void;
  /** Everything up to here has been handed on. */
  position(): bigint;
  /**
   * The next change of this root after the call. Ask first, then look at the resource, then await: a change
   * between the look and the waiting is not missed so. Rejects with the signal's reason.
   */
  waitFor(tenant: TenantId, root: string, signal: AbortSignal): Promise<ChangePosition>;
  /** When it last read on, on the monotonic clock. For readiness. */
  readonly turnedAt: number;
  stop(): Promise<void>;
}

export async function startChangeReader(options: {
  readonly db: Database;
  readonly lookout: Pick<Lookout, "wait" | "position">;
  readonly batch?: number;
  readonly onError: (error: unknown) => void;
}): Promise<ChangeReader> {
  const { db, lookout } = options;
  const batch = options.batch ?? 1_000;
  const subscribers = new Map<TenantId, Set<{ readonly root: string | null; readonly listener: Listener }>>();
  let { position } = await readCounter(db);
  let since = 0;

  function handOn(positions: readonly ChangePosition[]): void {
    for (const [tenant, own] of Map.groupBy(positions, (change) => change.tenant)) {
      for (const { root, listener } of subscribers.get(tenant) ?? []) {
        const wanted = root === null ? own : own.filter((change) => change.root === root);
        if (wanted.length === 0) continue;
        try {
          listener(wanted);
        } catch (error) {
          options.onError(error);
        }
      }
    }
  }

  async function readUpTo(head: bigint, signal: AbortSignal): Promise<void> {
    // A store that was set back goes on from where it stands now.
    if (head < position) position = head;
    while (position < head && !signal.aborted) {
      const rows = await runAlone(db, "dispatcher", readPositions, { after: position, limit: BigInt(batch) });
      const last = rows.at(-1)?.position ?? head;
      position = rows.length < batch && last < head ? head : last;
      handOn(rows.map(toChangePosition));
    }
  }

  const loop = startLoop({
    onError: options.onError,
    async turn(signal) {
      // After a failed read the lookout has nothing new to say, but there is still something to read.
      if (lookout.position === null || lookout.position === position) {
        ({ serial: since } = await lookout.wait("position", signal, { since }));
      }
      await readUpTo(lookout.position ?? position, signal);
    },
  });

  function subscribe(interest: Interest, listener: Listener): () => void {
    const subscriber = { root: interest.root ?? null, listener };
    const ofTenant = subscribers.get(interest.tenant) ?? new Set();
    subscribers.set(interest.tenant, ofTenant.add(subscriber));
    return () => {
      ofTenant.delete(subscriber);
      if (ofTenant.size === 0 && subscribers.get(interest.tenant) === ofTenant) {
        subscribers.delete(interest.tenant);
      }
    };
  }

  return {
    subscribe,
    position: () => position,
    get turnedAt() {
      return loop.turnedAt;
    },
    waitFor(tenant, root, signal) {
      return new Promise((resolve, reject) => {
        if (signal.aborted) return reject(signal.reason as Error);
        const settle = () => {
          end();
          signal.removeEventListener("abort", onAbort);
        };
        const end = subscribe({ tenant, root }, ([first]) => {
          if (first === undefined) return;
          settle();
          resolve(first);
        });
        const onAbort = () => {
          settle();
          reject(signal.reason as Error);
        };
        signal.addEventListener("abort", onAbort);
      });
    },
    stop: () => loop.stop(),
  };
}

function toChangePosition(row: ReadPositionsRow): ChangePosition {
  return {
    position: row.position,
    tenant: brandId<TenantId>(row.tenant_id),
    kind: row.kind,
    root: row.root_id,
  };
}
