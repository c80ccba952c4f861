import { setTimeout as delay } from "node:timers/promises";
import type pg from "pg";
import { type ConnectionSettings, connect, defaultPoolLimits, type Role } from "./pool.ts";

/** One direct connection that is opened again whenever it breaks: for LISTEN and for renewals. */
export interface Line {
  /** Undefined while there is no connection. */
  client(): pg.Client | undefined;
  /** Gives the present connection up, when it does not answer any more. A new one follows. */
  reset(): void;
  close(): Promise<void>;
}

const backoffFirstMs = 50;
const backoffMaxMs = 2_000;
const goodbyeMs = 1_000;

export function openLine(options: {
  readonly settings: ConnectionSettings;
  readonly role: Role;
  readonly name: string;
  /** Runs on each new connection before others may use it; when it throws, the connection is given up. */
  readonly prepare?: (client: pg.Client) => Promise<void>;
  readonly onOpen: () => void;
  /** Each failure to connect, and each loss. */
  readonly onError: (error: Error) => void;
}): Line {
  const closing = new AbortController();
  let current: pg.Client | undefined;

  async function hold(): Promise<void> {
    let ended = () => {};
    const end = new Promise<void>((resolve) => {
      ended = resolve;
    });
    const client = await connect(options.settings, options.role, options.name, defaultPoolLimits, (fresh) => {
      fresh.on("error", (error) => {
        // Whoever closes a connection breaks it: that is no loss.
        if (!closing.signal.aborted) options.onError(error);
      });
      fresh.once("end", () => ended());
    });
    try {
      if (closing.signal.aborted) return;
      await options.prepare?.(client);
      current = client;
      options.onOpen();
      const closed = new Promise<void>((resolve) => {
        closing.signal.addEventListener("abort", () => resolve(), { once: true });
      });
      await Promise.race([end, closed]);
    } finally {
      current = undefined;
      await hangUp(client);
    }
  }

  async function keep(): Promise<void> {
    let pauseMs = backoffFirstMs;
    while (!closing.signal.aborted) {
      try {
        await hold();
        pauseMs = backoffFirstMs;
      } catch (error) {
        if (closing.signal.aborted) return;
        options.onError(error instanceof Error ? error : new Error(String(error)));
      }
      await delay(pauseMs, undefined, { signal: closing.signal }).catch(() => undefined);
      pauseMs = Math.min(pauseMs * 2, backoffMaxMs);
    }
  }

  const ended = keep();
  return {
    client: () => current,
    reset() {
      const client = current;
      current = undefined;
      if (client !== undefined) void hangUp(client);
    },
    async close() {
      closing.abort();
      await ended;
    },
  };
}

/** Ends at once when a query is running; a peer that is gone can't delay it for long. */
async function hangUp(client: pg.Client): Promise<void> {
  await Promise.race([client.end(), delay(goodbyeMs, undefined, { ref: false })]).catch(() => undefined);
}
