import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openAttempts } from "../../test/support/attempts.ts";
import { openCallbacks } from "../../test/support/callbacks.ts";
import { until } from "../../test/support/until.ts";
import type { HeldLease } from "../core/lease.ts";
import type { Database } from "../core/postgres/transition.ts";
import type { Observation, Runtime } from "../core/runtime.port.ts";
import { seconds } from "../core/time.ts";
import { attend } from "./attend.ts";
import type { ControllerContext } from "./context.ts";

const bench = await openAttempts({ after }, { slots: 20 });
const callbacks = await openCallbacks({ after }, bench.db);

/** A world in which a sandbox runs until it is asked to stop, and writes nothing. */
function quietRuntime(more: Partial<Runtime> = {}): Runtime & { readonly stopped: Set<string> } {
  const stopped = new Set<string>();
  const outcome = {
    kind: "stopped",
    exitCode: null,
    signal: null,
    message: "stopped",
    startedAt: null,
    finishedAt: null,
  } as const;
  return {
    kind: "process",
    stopped,
    prepare: async ({ name }) => ({ uid: `uid-of-${name}` }),
    fence: async () => undefined,
    release: async () => undefined,
    observe: async ({ name, uid }): Promise<Observation> =>
      stopped.has(name)
        ? { state: "stopped", uid, outcome, proof: "it was told so" }
        : { state: "running", uid, startedAt: null },
    changed: (_, signal) => new Promise((resolve) => signal.addEventListener("abort", () => resolve())),
    async stop({ name }) {
      stopped.add(name);
    },
    async *logs() {
      yield* [];
    },
    find: async () => null,
    secretValues: async () => [],
    remove: async () => undefined,
    async *list() {
      yield* [];
    },
    ...more,
  };
}

function contextOf(db: Database, runtime: Runtime): ControllerContext {
  return {
    db,
    installation: "test",
    runtimes: new Map([["process", runtime]]),
    blobs: callbacks.blobs,
    callback: { url: callbacks.url, token: callbacks.token },
    settings: {
      retention: seconds(3600),
      logRetention: seconds(3600),
      queueMax: 100,
      logBytesMax: 1_000_000n,
    },
    log: () => undefined,
  };
}

/** The store, with something done right after its next transaction has ended. */
function afterNextCommit(db: Database, act: () => Promise<unknown>): Database {
  let waiting = true;
  return {
    ...db,
    pools: {
      ...db.pools,
      of(role) {
        const pool = db.pools.of(role);
        if (role !== "controller" || !waiting) return pool;
        return new Proxy(pool, {
          get(target, property) {
            if (property !== "connect" || !waiting) return Reflect.get(target, property) as unknown;
            return async () => {
              const client = await target.connect();
              return new Proxy(client, {
                get(inner, name) {
                  const value: unknown = Reflect.get(inner, name);
                  if (typeof value !== "function") return value;
                  if (name !== "query") return value.bind(inner) as unknown;
                  return async (...args: unknown[]) => {
                    const result: unknown = await (value as (...all: unknown[]) => unknown).apply(
                      inner,
                      args,
                    );
                    if (args[0] === "commit" && waiting) {
                      waiting = false;
                      await act();
                    }
                    return result;
                  };
                },
              });
            };
          },
        });
      },
    },
  };
}

/** Attended to while the work is done; `tell` says that something about the job has changed. */
async function attended(
  context: ControllerContext,
  lease: HeldLease,
  work: (tell: () => void) => Promise<void>,
): Promise<void> {
  const over = new AbortController();
  let tell = () => {};
  const result = attend(context, lease, over.signal, (_, onChange) => {
    tell = onChange;
    return () => undefined;
  });
  try {
    await work(() => tell());
  } finally {
    over.abort();
    await result;
  }
}

test("G8: a cancellation that comes between the first look and the listening is seen at once", async () => {
  const { lease, job, attempt } = await bench.begin();
  await bench.released(lease);
  const db = afterNextCommit(bench.db, () => bench.cancel(job));
  const runtime = quietRuntime();
  await attended(contextOf(db, runtime), lease, async () => {
    await until(
      "cancelled",
      async () => {
        const [row] = await bench.kernel.ask<{ outcome: string | null }>(
          "select outcome from holdfast.execution_attempts where attempt_id = $1",
          [attempt],
        );
        return row?.outcome === "cancelled";
      },
      10_000,
    );
  });
  assert.equal(runtime.stopped.size, 1);
});

test("E8 E10: what can't be asked about keeps its slot, and says since when, until it answers", async () => {
  const { lease, job, attempt } = await bench.begin();
  await bench.released(lease);
  await bench.cancel(job);
  let blind = true;
  const runtime: Runtime = quietRuntime();
  const observe = runtime.observe.bind(runtime);
  const context = contextOf(bench.db, {
    ...runtime,
    observe: (ref, signal) =>
      blind ? Promise.resolve({ state: "unproven", reason: "the node is gone" }) : observe(ref, signal),
  });
  const facts = async () => {
    const [row] = await bench.kernel.ask<{ state: string; unproven: string | null; slots: number }>(
      `select s.state, s.stop_unproven_reason as unproven,
         (select count(*)::int from holdfast.slots where attempt_id = s.owner_id) as slots
       from holdfast.sandbox_attempts s where s.owner_id = $1`,
      [attempt],
    );
    return row;
  };
  await attended(context, lease, async () => {
    await until("unproven", async () => (await facts())?.unproven);
    assert.deepEqual(await facts(), { state: "stopping", unproven: "the node is gone", slots: 1 });
    blind = false;
    await until("proven", async () => (await facts())?.slots === 0);
    assert.equal((await facts())?.unproven, null);
  });
});

test("E8: what has answered again, and runs, is not in question any more", async () => {
  const { lease, job, attempt } = await bench.begin();
  await bench.released(lease);
  let says: Observation | null = { state: "unproven", reason: "the node is gone" };
  const runtime = quietRuntime();
  const observe = runtime.observe.bind(runtime);
  const context = contextOf(bench.db, {
    ...runtime,
    observe: (ref, signal) => (says === null ? observe(ref, signal) : Promise.resolve(says)),
  });
  const facts = async () => {
    const [row] = await bench.kernel.ask<{ uid: string; state: string; since: string | null }>(
      "select uid, state, stop_unproven_at as since from holdfast.sandbox_attempts where owner_id = $1",
      [attempt],
    );
    return row;
  };
  await attended(context, lease, async (tell) => {
    await until("it is in question", async () => (await facts())?.since);
    const { uid = "" } = (await facts()) ?? {};
    says = { state: "running", uid, startedAt: null };
    await until("it is not any more", async () => (await facts())?.since === null);
    assert.equal((await facts())?.state, "released");
    says = null;
    await bench.cancel(job);
    tell();
    await until("done with", async () => (await bench.look(lease)).state === "cleaned");
  });
});

test("a failure that will pass is tried again, and one sandbox is made of it", async () => {
  const { lease, attempt, job } = await bench.begin();
  let failures = 2;
  let made = 0;
  const runtime = quietRuntime({
    async prepare({ name }) {
      made += 1;
      if (failures > 0) {
        failures -= 1;
        throw new Error("the world is away");
      }
      return { uid: `uid-of-${name}` };
    },
  });
  await attended(contextOf(bench.db, runtime), lease, async (tell) => {
    const released = await until("released", async () => {
      const rows = await bench.kernel.ask<{ ordinal: number }>(
        "select ordinal from holdfast.sandbox_attempts where owner_id = $1 and state = 'released'",
        [attempt],
      );
      return rows[0];
    });
    assert.deepEqual([released.ordinal, made], [1, 3]);
    await bench.cancel(job);
    tell();
    await until("done with", async () => (await bench.look(lease)).state === "cleaned");
  });
});
