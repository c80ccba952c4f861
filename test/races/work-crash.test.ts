import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Pool } from "pg";
import type { Work } from "../../src/work/handle.ts";
import { submit } from "../../src/work/open.ts";
import { effectSafeties } from "../../src/work/safety.ts";
import { createWorker, type Worker } from "../../src/work/worker.ts";
import type { WorkTask } from "../fixtures/work-process.ts";
import { until } from "../support/until.ts";
import { type WorkStand, workStand } from "../support/work.ts";
import { effectLease, effectOf } from "../support/work-effects.ts";
import { crashMoments } from "../support/work-moments.ts";

const fixture = join(import.meta.dirname, "../fixtures/work-process.ts");

describe("W5 W6 W11: a worker dies or stands still around its effect", () => {
  const hooks: (() => unknown)[] = [];
  let stand: WorkStand;
  let world: Pool;
  let survivor: { readonly work: Work; readonly definitions: ReturnType<typeof effectOf>[] };

  before(async () => {
    stand = await workStand({ after: (hook) => void hooks.push(hook) });
    await stand.ask("create table public.effects (work_id uuid, attempt int)");
    world = new Pool({ ...stand.database.superuser, max: 4 });
    world.on("error", () => undefined);
    const definitions = effectSafeties.map((safety) => effectOf(safety, world, () => undefined));
    await stand.work.register(...definitions);
    survivor = { work: stand.work, definitions };
  });
  after(async () => {
    await world.end();
    for (const hook of hooks) await hook();
  });

  function victim(task: Pick<WorkTask, "safety" | "moment" | "ending">) {
    const { app, superuser } = stand.database;
    const text = JSON.stringify({ app, superuser, ...task });
    return spawn(process.execPath, [fixture, text], { stdio: ["pipe", "pipe", "inherit"] });
  }

  const facts = async (id: string) => {
    const [row] = await stand.ask<{ state: string; effects: number; observed: string[]; unknown: number }>(
      `select coalesce((select state from holdfast.work_history where work_id = $1),
           (select work_state from holdfast.leases_work where resource_id = $1)) as state,
         (select count(*)::int from public.effects where work_id = $1) as effects,
         (select count(*)::int from holdfast.work_attempts where work_id = $1 and outcome = 'unknown') as unknown,
         array(select reason || ' ' || retention_policy from holdfast.work_observations where work_id = $1) as observed`,
      [id],
    );
    assert.ok(row);
    return row;
  };

  async function settled(ids: readonly string[]) {
    const worker: Worker = await createWorker(survivor.work, {
      works: survivor.definitions,
      lease: effectLease,
    });
    try {
      return await until(
        "all of it is settled or suspended",
        async () => {
          const all = await Promise.all(ids.map(facts));
          return all.every(({ state }) => ["succeeded", "suspended"].includes(state)) ? all : null;
        },
        40_000,
      );
    } finally {
      await worker.stop();
    }
  }

  for (const moment of crashMoments) {
    test(`W5 W11: SIGKILL ${moment}: each safety class keeps its promise`, async () => {
      const ids: string[] = [];
      for (const [place, safety] of effectSafeties.entries()) {
        const definition = survivor.definitions[place];
        assert.ok(definition);
        const { id } = await submit(stand.work, definition, {});
        ids.push(id);
        const child = victim({ safety, moment, ending: "killed" });
        const [, signal] = (await once(child, "exit")) as [number | null, string];
        assert.equal(signal, "SIGKILL");
      }
      const all = await settled(ids);
      const place = crashMoments.indexOf(moment);
      const permitted = place >= crashMoments.indexOf("after permit") && moment !== "after settle";
      const applied = place >= crashMoments.indexOf("after effect");
      for (const [index, safety] of effectSafeties.entries()) {
        const { state, effects, unknown } = all[index] ?? (await facts(""));
        assert.equal(unknown, permitted ? 1 : 0, `${safety}: a lost permit counts, a claim does not`);
        switch (safety) {
          case "idempotent":
          case "provider_keyed":
            assert.deepEqual([state, effects], ["succeeded", permitted && applied ? 2 : 1], safety);
            break;
          case "reconcile_before_retry":
            assert.deepEqual([state, effects], ["succeeded", 1], safety);
            break;
          case "manual_resolution":
            assert.deepEqual(
              [state, effects],
              permitted ? ["suspended", applied ? 1 : 0] : ["succeeded", 1],
              safety,
            );
            break;
          default:
            safety satisfies never;
        }
      }
    });
  }

  /** All that is stored of the items, but what was observed of late results. */
  const everything = (ids: readonly string[]) =>
    stand.ask(
      `select 'item' as what, w::text as row from holdfast.work_items w where work_id = any ($1)
       union all select 'lease', l::text from holdfast.leases_work l where resource_id = any ($1)
       union all select 'history', h::text from holdfast.work_history h where work_id = any ($1)
       union all select 'attempt', a::text from holdfast.work_attempts a where work_id = any ($1)
       union all select 'proof', p::text from holdfast.work_proofs p where work_id = any ($1)
       union all select 'suspension', s::text from holdfast.work_suspensions s where work_id = any ($1)
       order by 1, 2`,
      [ids],
    );

  for (const moment of crashMoments) {
    test(`W5 W6 W11: SIGSTOP ${moment}, past the lease, then resumed: what it still writes changes nothing`, async () => {
      const zombies = [];
      for (const safety of effectSafeties) {
        const definition = survivor.definitions[effectSafeties.indexOf(safety)];
        assert.ok(definition);
        const { id } = await submit(stand.work, definition, {});
        const child = victim({ safety, moment, ending: "stopped" });
        zombies.push({ id, child, definition, safety, there: once(child.stdout, "data") });
      }
      try {
        for (const { child, there } of zombies) {
          await there;
          child.kill("SIGSTOP");
        }
        const ids = zombies.map(({ id }) => id);
        const before = await settled(ids);
        const rows = await everything(ids);
        for (const { child } of zombies) {
          child.kill("SIGCONT");
          child.stdin.write("go\n");
        }
        const late = ["before effect", "after effect", "before settle"].includes(moment);
        for (const { id, definition } of zombies) {
          if (late)
            await until("its result is quarantined", async () => (await facts(id)).observed.length > 0);
          // Whatever it still had, it is through with it, and works like any other.
          const { id: next } = await submit(stand.work, definition, {});
          await until("it runs what comes now", async () => (await facts(next)).state === "succeeded");
        }
        assert.deepEqual(await everything(ids), rows, "nothing of it was taken");
        for (const [place, { id, safety }] of zombies.entries()) {
          const now = await facts(id);
          assert.deepEqual([now.state, now.effects], [before[place]?.state, before[place]?.effects], safety);
          if (late) assert.match(now.observed.join(), /^(finished|expired|superseded) zombies$/, safety);
          else assert.deepEqual(now.observed, [], safety);
        }
      } finally {
        for (const { child } of zombies) child.kill("SIGKILL");
      }
    });
  }
});
