import { type Change, readChanges } from "../core/change.store.ts";
import type { TenantId } from "../core/ids.ts";
import type { Database } from "../core/postgres/transition.ts";
import type { ChangeReader } from "../core/watch.ts";

/** A tenant's changes, read once for all its live streams in this process. */
export interface Feed {
  /** Everything up to here was handed to the listeners. */
  readonly position: bigint;
  /** No later than this call's moment, and nothing up to it is still on its way. Null while something is. */
  settled(): bigint | null;
  leave(): void;
}

type Listener = (changes: readonly Change[], upto: bigint) => void;

export interface Feeds {
  join(tenant: TenantId, listener: Listener): Feed;
}

interface TenantFeed {
  readonly listeners: Set<Listener>;
  position: bigint;
  target: bigint;
  reading: boolean;
}

/** `onLost`: bodies can't be read, so the tenant's streams have to end; their clients resume by cursor. */
export function openFeeds(options: {
  readonly db: Database;
  readonly reader: Pick<ChangeReader, "subscribe" | "position">;
  readonly batch: number;
  readonly onError: (error: unknown) => void;
  readonly retryMs: number;
}): Feeds {
  const { db, reader, batch } = options;
  const feeds = new Map<TenantId, TenantFeed & { readonly close: () => void }>();

  async function readOn(tenant: TenantId, feed: TenantFeed): Promise<void> {
    if (feed.reading) return;
    feed.reading = true;
    try {
      while (feed.position < feed.target && feed.listeners.size > 0) {
        const upto = feed.target;
        const range = { after: feed.position, upto, kinds: [], root: null, limit: batch };
        const changes = await readChanges(db, tenant, range);
        const reached = changes.length < batch ? upto : (changes.at(-1)?.position ?? upto);
        feed.position = reached;
        for (const listener of feed.listeners) listener(changes, reached);
      }
    } catch (error) {
      options.onError(error);
      setTimeout(() => void readOn(tenant, feed), options.retryMs).unref();
    } finally {
      feed.reading = false;
    }
  }

  function open(tenant: TenantId): TenantFeed & { readonly close: () => void } {
    const feed = {
      listeners: new Set<Listener>(),
      position: 0n,
      target: 0n,
      reading: false,
      close: () => {},
    };
    feed.close = reader.subscribe({ tenant }, (positions) => {
      feed.target = positions.at(-1)?.position ?? feed.target;
      void readOn(tenant, feed);
    });
    feed.position = feed.target = reader.position();
    feeds.set(tenant, feed);
    return feed;
  }

  return {
    join(tenant, listener) {
      const feed = feeds.get(tenant) ?? open(tenant);
      feed.listeners.add(listener);
      return {
        get position() {
          return feed.position;
        },
        settled: () => (feed.position < feed.target ? null : reader.position()),
        leave() {
          feed.listeners.delete(listener);
          if (feed.listeners.size > 0 || feeds.get(tenant) !== feed) return;
          feeds.delete(tenant);
          feed.close();
        },
      };
    },
  };
}
