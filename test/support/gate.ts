import { setTimeout as delay } from "node:timers/promises";
import type { Pool, PoolClient } from "pg";
import type { Database } from "../../src/core/postgres/transition.ts";

/**
 * A database whose next transition stops before its `at`th statement after BEGIN, or before it commits or rolls
 * back, and stays open there with all its locks. The code under test knows nothing of it. Reads pass.
 */
export interface Gate {
  readonly db: Database;
  /** It stands there now. */
  readonly reached: Promise<void>;
  readonly open: () => void;
  /** The server's process of the transition, null before it has a connection. */
  readonly pid: () => number | null;
  /** Statements that it has sent. */
  readonly sent: () => number;
}

export function gatedDatabase(db: Database, at: number | "end" = "end"): Gate {
  const reached = Promise.withResolvers<void>();
  const opened = Promise.withResolvers<void>();
  let pid: number | null = null;
  let sent = 0;

  async function pass(): Promise<void> {
    reached.resolve();
    await opened.promise;
  }

  function gatedClient(client: PoolClient): PoolClient {
    let writes = false;
    return over(client, {
      async query(...words: Parameters<PoolClient["query"]>) {
        const [asked] = words as readonly unknown[];
        if (typeof asked === "string" && asked.startsWith("begin")) {
          writes = !asked.includes("read only");
          pid = Number(Reflect.get(client, "processID"));
        } else if (writes) {
          sent += 1;
          const ends = asked === "commit" || asked === "rollback";
          if (ends || sent === at) await pass();
        }
        return client.query(...words);
      },
    });
  }

  return {
    db: { ...db, pools: { ...db.pools, of: (role) => gatedPool(db.pools.of(role), gatedClient) } },
    reached: reached.promise,
    open: () => opened.resolve(),
    pid: () => pid,
    sent: () => sent,
  };
}

function gatedPool(pool: Pool, gated: (client: PoolClient) => PoolClient): Pool {
  return over(pool, { connect: async () => gated(await pool.connect()) });
}

/** The target with some members replaced; all others run on the target itself. */
function over<T extends object>(target: T, members: Partial<Record<keyof T, unknown>>): T {
  return new Proxy(target, {
    get(_, key) {
      if (Object.hasOwn(members, key)) return members[key as keyof T];
      const member: unknown = Reflect.get(target, key);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
}

export type Standing = "waits" | "at the gate" | "over";

/** Where a transition stands once it can't get any further by itself. */
export async function standingOf(
  gate: Gate,
  over: Promise<unknown>,
  blocked: (pid: number) => Promise<boolean>,
): Promise<Standing> {
  const known = Promise.race([
    gate.reached.then(() => "at the gate" as const),
    over.then(
      () => "over" as const,
      () => "over" as const,
    ),
  ]);
  for (let sent = -1; ; sent = gate.sent()) {
    const standing = await Promise.race([known, delay(1)]);
    if (standing !== undefined) return standing;
    const pid = gate.pid();
    // Only a transition that has not moved since the last look can be waiting.
    if (pid !== null && sent === gate.sent() && (await blocked(pid))) return "waits";
  }
}
