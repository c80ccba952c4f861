import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { Client, Pool } from "pg";
import { seconds } from "../../src/core/time.ts";
import { prepareStore } from "../../src/dev/store.ts";
import { openWork, submit } from "../../src/work/open.ts";
import { type OpenedWork, openedWork } from "../../src/work/opened.ts";
import { effectSafeties } from "../../src/work/safety.ts";
import { createWorker } from "../../src/work/worker.ts";
import { type CrashingPostgres, startCrashingPostgres } from "../support/crashing-postgres.ts";
import { emptyDatabase } from "../support/database.ts";
import { until } from "../support/until.ts";
import { effectOf, effectTenant, shortLease } from "../support/work-effects.ts";
import { type CrashMoment, crashMoments, watchStatements } from "../support/work-moments.ts";

/** How long the server stays away: less than the leases, or until all of them have passed. */
const absences = ["shortly", "past the leases"] as const;
const settledWithin = 60_000;

describe("W5 W6 W11: the server dies around an effect", { concurrency: false }, () => {
  const hooks: (() => unknown)[] = [];
  let server: CrashingPostgres;
  let database: Awaited<ReturnType<typeof prepareStore>>;
  /** Where effects are counted: another server, which nobody kills. */
  let world: Pool;

  before(async () => {
    const outside = await emptyDatabase({ after: (hook) => void hooks.push(hook) });
    world = new Pool({ ...outside.superuser, max: 8 });
    world.on("error", () => undefined);
    await world.query("create table public.effects (work_id uuid, attempt int)");
    server = await startCrashingPostgres();
    database = await prepareStore(server.connection, "crash", () => undefined);
    await ask("insert into holdfast.tenants (tenant_id) values ($1)", [effectTenant]);
  });
  after(async () => {
    await world.end();
    await server.stop();
    for (const hook of hooks) await hook();
  });

  async function ask<Row extends object>(text: string, values: readonly unknown[] = []): Promise<Row[]> {
    const client = new Client({ ...server.connection, database: database.database });
    client.on("error", () => undefined);
    await client.connect();
    try {
      return (await client.query<Row>(text, [...values])).rows;
    } finally {
      await client.end();
    }
  }

  const effectsOf = async (id: string) => {
    const { rows } = await world.query<{ attempt: number }>(
      "select attempt from public.effects where work_id = $1 order by 1",
      [id],
    );
    return rows.map(({ attempt }) => attempt);
  };

  async function factsOf(id: string) {
    const [row] = await ask<{ state: string; lost: number[]; observed: number }>(
      `select coalesce((select state from holdfast.work_history where work_id = $1),
           (select work_state from holdfast.leases_work where resource_id = $1)) as state,
         array(select attempt::int from holdfast.work_attempts where work_id = $1 and outcome = 'unknown' order by 1) as lost,
         (select count(*)::int from holdfast.work_observations where work_id = $1) as observed`,
      [id],
    );
    assert.ok(row);
    return { ...row, effects: await effectsOf(id) };
  }

  async function open(name: string): Promise<OpenedWork> {
    return openedWork(await openWork({ database, tenant: effectTenant, name, onError: () => undefined }));
  }

  for (const absence of absences) {
    for (const moment of crashMoments) {
      test(`W5 W6 W11: SIGKILL of the server ${moment}, back ${absence}: each safety class keeps its promise`, async () => {
        const lease = absence === "shortly" ? seconds(30) : shortLease;
        const died = Promise.withResolvers<void>();
        const back = Promise.withResolvers<void>();
        let crashed = false;
        let here = 0;
        /** The first of the four to come there kills it, for all of them; inside handlers the last one does. */
        const at = async (came: string) => {
          if (came !== moment || crashed) return;
          if (came.endsWith("effect")) {
            here += 1;
            if (here < effectSafeties.length) return died.promise;
          }
          crashed = true;
          await server.crash();
          died.resolve();
          // Nothing of the worker goes on before the leases have passed.
          if (absence === "past the leases") await back.promise;
        };
        const work = await open("survivor");
        const definitions = effectSafeties.map((safety) => effectOf(safety, world, at));
        await work.register(...definitions);
        const ids: string[] = [];
        for (const definition of definitions) ids.push((await submit(work, definition, {})).id);
        watchStatements(work.db.pools, at);
        const worker = await createWorker(work, {
          works: definitions,
          concurrency: 4,
          lease,
          retention: "crash",
        });
        const settled = async () => {
          try {
            await died.promise;
            if (absence === "past the leases") {
              const passed = performance.now() + Number(lease / 1000n) + 200;
              await until("the leases have passed", () => performance.now() > passed);
            }
            await server.restart();
            back.resolve();
            return await until(
              "all of it is settled or suspended",
              async () => {
                const facts = await Promise.all(ids.map(factsOf));
                return facts.every(({ state }) => ["succeeded", "suspended"].includes(state)) ? facts : null;
              },
              settledWithin,
            );
          } finally {
            await worker.stop();
            await work.close();
          }
        };
        const all = await settled();
        for (const [place, safety] of effectSafeties.entries()) {
          const facts = all[place];
          assert.ok(facts);
          const told = `${safety}: ${JSON.stringify(facts)}`;
          // Every effect had a permit of its own, and none of them was used twice.
          assert.equal(new Set(facts.effects).size, facts.effects.length, told);
          switch (safety) {
            case "idempotent":
            case "provider_keyed":
              assert.equal(facts.state, "succeeded", told);
              assert.ok(facts.effects.length >= 1, told);
              // It is repeated for a permit that was lost, and for no other reason.
              assert.ok(facts.effects.length <= 1 + facts.lost.length, told);
              break;
            case "reconcile_before_retry":
              assert.deepEqual([facts.state, facts.effects.length], ["succeeded", 1], told);
              break;
            case "manual_resolution":
              assert.equal(facts.state, facts.lost.length === 0 ? "succeeded" : "suspended", told);
              assert.ok(facts.effects.length <= 1, told);
              if (facts.state === "succeeded") assert.equal(facts.effects.length, 1, told);
              break;
            default:
              safety satisfies never;
          }
          if (absence === "shortly" || neverPermitted(moment)) assert.deepEqual(facts.lost, [], told);
        }
      });
    }
  }

  function neverPermitted(moment: CrashMoment): boolean {
    return crashMoments.indexOf(moment) < crashMoments.indexOf("after permit");
  }
});
