import { openLine } from "./line.ts";
import type { ConnectionSettings, Role } from "./pool.ts";

/**
 * Tells every process that something was committed, so that its loops look at once instead of at their next
 * interval. It carries nothing and promises nothing: what must be found is found by looking.
 *
 * NOTIFY takes a lock of the whole database until its commit, so no transaction that writes rows contains
 * one: this connection sends them by itself, and at most one in five milliseconds.
 */
export interface Doorbell {
  /** Wakes the listeners of this process at once and those of the others soon. Never throws. */
  ring(): void;
  /** As `ring`, for the other processes only: nobody in this one waits for what was committed. */
  ringOthers(): void;
  /** The listener must not throw. Returns what removes it. */
  onRing(listener: () => void): () => void;
  close(): Promise<void>;
}

const channel = "holdfast_doorbell";
const gapMs = 5;
const answerMaxMs = 5_000;

export function openDoorbell(options: {
  readonly settings: ConnectionSettings;
  readonly name: string;
  /** Any may listen and notify. A process that plays no dispatcher names one that it plays. */
  readonly role?: Role;
  readonly onError: (error: Error) => void;
}): Doorbell {
  const listeners = new Set<() => void>();
  const wake = () => {
    for (const listener of listeners) listener();
  };
  /** A ring that has not been sent yet. While the connection is down it stays owed. */
  let owed = false;
  let sending = false;
  let closing = false;
  let gap: NodeJS.Timeout | undefined;

  const line = openLine({
    settings: options.settings,
    role: options.role ?? "dispatcher",
    name: `${options.name}/doorbell`,
    async prepare(client) {
      const own = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
      const pid = own.rows[0]?.pid;
      // This process has heard its own ring already.
      client.on("notification", (notification) => {
        if (notification.processId !== pid) wake();
      });
      await client.query(`listen ${channel}`);
    },
    onOpen() {
      // Whatever was rung before this connection went unheard.
      wake();
      send();
    },
    onError: options.onError,
  });

  function send(): void {
    const client = line.client();
    if (!owed || sending || gap !== undefined || client === undefined) return;
    owed = false;
    sending = true;
    gap = setTimeout(() => {
      gap = undefined;
      send();
    }, gapMs);
    const overdue = setTimeout(() => line.reset(), answerMaxMs);
    client
      .query(`notify ${channel}`)
      .catch((error: Error) => {
        owed = true;
        // To close is to hang up, also on a ring that is under way: others find by looking what it would have told.
        if (!closing) options.onError(error);
      })
      .finally(() => {
        clearTimeout(overdue);
        sending = false;
        send();
      });
  }

  const ringOthers = () => {
    owed = true;
    send();
  };
  return {
    ringOthers,
    ring() {
      ringOthers();
      wake();
    },
    onRing(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    async close() {
      closing = true;
      listeners.clear();
      await line.close();
      clearTimeout(gap);
    },
  };
}
