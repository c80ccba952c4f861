import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { seconds } from "../../src/core/time.ts";
import { defineWork } from "../../src/work/define.ts";
import { submit, submitAll } from "../../src/work/open.ts";
import { legacy } from "../../src/work/policy.ts";
import { type Asked, overhear, settles, takes } from "../support/overhear.ts";
import { until } from "../support/until.ts";
import { workStand } from "../support/work.ts";

test("W5: what comes into a line that was emptied is taken by a turn that looks there first, and a claim finds what is elsewhere", async (t) => {
  const { work, worker, open, ask } = await workStand(t);
  const listener = await open("listener");
  const claimsBefore: number[] = [];
  let [claims, askedAtMs] = [0, 0];
  overhear(listener, ({ name }) => {
    askedAtMs = performance.now();
    if (name === "turn.claimWork") claims += 1;
  });
  const counted = defineWork<unknown, void>({
    name: "noop",
    version: "1",
    safety: "manual_resolution",
    policy: legacy(),
    run: () => void claimsBefore.push(claims),
  });
  await worker({ works: [counted], concurrency: 10 }, listener);
  const rests = async () => {
    await until(
      "all of it is finished",
      async () => (await ask("select from holdfast.leases_work")).length === 0,
    );
    await until("nothing more is asked", () => performance.now() - askedAtMs > 200);
    claims = 0;
  };
  await submit(work, counted, 1);
  await rests();
  await submit(work, counted, 2);
  await rests();
  assert.equal(claimsBefore[1], 0);
  // Nothing is where the guess looks.
  await submit(work, counted, 3, { tenant: "other" });
  await rests();
  assert.ok((claimsBefore[2] ?? 0) > 0);
  await submit(work, counted, 4, { priority: 0 });
  await rests();
  assert.equal(claimsBefore.length, 4);
});

test("W11: items of a strict class are permitted by one turn while another settles, and never more of them than handlers are free", async (t) => {
  const { work, worker, open, ask } = await workStand(t);
  const listener = await open("listener");
  const concurrency = 20;
  const sent = new Set<Asked>();
  let [running, most, mostAsked, overlaps] = [0, 0, 0, 0];
  let [settling, taken] = [0, 0];
  overhear(listener, (asked, answered) => {
    if (asked.name !== "turn.turnWork") return;
    if (answered) return void sent.delete(asked);
    sent.add(asked);
    if (settles(asked)) settling += 1;
    if (takes(asked) > 0) taken += 1;
    const all = [...sent];
    const permits = all.reduce((sum, one) => sum + takes(one), 0);
    mostAsked = Math.max(mostAsked, permits + running);
    const taking = all.some((one) => takes(one) > 0 && !settles(one));
    if (taking && all.some((one) => settles(one) && takes(one) === 0)) overlaps += 1;
  });
  const strict = defineWork<unknown, void>({
    name: "noop",
    version: "1",
    safety: "manual_resolution",
    policy: legacy(),
    async run() {
      running += 1;
      most = Math.max(most, running);
      await Promise.resolve();
      running -= 1;
    },
  });
  await work.register(strict);
  await submitAll(
    work,
    strict,
    Array.from({ length: 1_000 }, () => ({ input: 0 })),
  );
  await worker({ works: [strict], concurrency }, listener);
  await until(
    "all of it is settled",
    async () => (await ask("select from holdfast.leases_work")).length === 0,
    60_000,
  );
  assert.ok(most <= concurrency && mostAsked <= concurrency, `${most} ran, ${mostAsked} were asked for`);
  assert.ok(overlaps > 0);
  // What has finished waits for more of its kind, while there are permits to take.
  assert.ok(settling < 0.75 * taken, `${settling} of turns settled, ${taken} took`);
  const rows = await ask<{ state: string; attempts: number; n: number }>(
    "select state, attempts, count(*)::int as n from holdfast.work_history group by 1, 2",
  );
  assert.deepEqual(rows, [{ state: "succeeded", attempts: 1, n: 1_000 }]);
});

test("W5: what a turn took whose answer comes late is not given back for another one whose answer was lost", async (t) => {
  const { ask, worker, work, open } = await workStand(t);
  const ran: string[] = [];
  const noop = defineWork<unknown, void>({
    name: "noop",
    version: "1",
    safety: "idempotent",
    policy: legacy(),
    run: (_, { id }) => void ran.push(id),
  });
  await work.register(noop);
  const all = Array.from({ length: 3_000 }, () => ({ input: 0 }));
  await submitAll(work, noop, all);
  const shaky = await open("shaky");
  const pool = shaky.db.pools.of("worker");
  const query = pool.query.bind(pool) as (asked: Asked) => Promise<unknown>;
  const takesMany = (asked: Asked) => asked.name === "turn.turnWork" && takes(asked) > 100;
  const committed = Promise.withResolvers<undefined>();
  const readBack = Promise.withResolvers<undefined>();
  let [underWay, lost, late] = [0, 0, 0];
  Object.assign(pool, {
    async query(asked: Asked) {
      if (asked.name === "turn.takenWork") {
        await committed.promise;
        // What is found is known before the late answer is.
        return query(asked).finally(() => setTimeout(() => readBack.resolve(undefined), 50));
      }
      if (!takesMany(asked)) return query(asked);
      underWay += 1;
      const second = underWay === 2 && late === 0;
      if (second) late += 1;
      const answer = await query(asked);
      underWay -= 1;
      if (second) {
        committed.resolve(undefined);
        // With nobody who reads back before it, that takes so long.
        await Promise.race([readBack.promise, delay(500)]);
      } else if (late === 1 && lost === 0) {
        lost += 1;
        throw Object.assign(new Error("the answer was lost"), { code: "ECONNRESET" });
      }
      return answer;
    },
  });
  await worker({ works: [noop], concurrency: 10 }, shaky);
  await until(
    "all of it is settled",
    async () => (await ask("select from holdfast.leases_work")).length === 0,
    60_000,
  );
  assert.deepEqual([lost, late], [1, 1]);
  assert.deepEqual([new Set(ran).size, ran.length], [all.length, all.length]);
});

test("W5 W11: what was left unknown is no permit that nobody has used, when the answer to a later turn is lost", async (t) => {
  const { ask, worker, work, open } = await workStand(t);
  const ran: string[] = [];
  const call = defineWork<string, void>({
    name: "call",
    version: "1",
    safety: "manual_resolution",
    policy: legacy({ initial: seconds(0) }),
    run(input) {
      ran.push(input);
      if (input === "breaks") throw new Error("the connection broke");
    },
  });
  await work.register(call);
  const shaky = await open("shaky");
  const pool = shaky.db.pools.of("worker");
  const query = pool.query.bind(pool) as (asked: Asked) => Promise<unknown>;
  let losing = false;
  const known: string[] = [];
  Object.assign(pool, {
    async query(asked: Asked) {
      if (asked.name === "turn.takenWork") known.push(String(asked.values?.at(-1)));
      const answer = await query(asked);
      if (!losing || asked.name !== "turn.turnWork" || takes(asked) === 0) return answer;
      losing = false;
      throw Object.assign(new Error("the answer was lost"), { code: "ECONNRESET" });
    },
  });
  const settled: string[] = [];
  await worker({ works: [call], concurrency: 10, onSettled: (_, what) => settled.push(what) }, shaky);
  await submit(work, call, "breaks");
  await until("it is unknown", () => settled.includes("unknown"));
  const [left] = await ask<{ epoch: string }>("select epoch::text from holdfast.leases_work");
  losing = true;
  await submitAll(
    work,
    call,
    Array.from({ length: 100 }, (_, n) => ({ input: `n${n}` })),
  );
  await until("all others have run", () => settled.filter((what) => what === "finished").length === 100);
  assert.equal(losing, false);
  assert.ok(known.length > 0);
  for (const epochs of known) assert.ok(epochs.split(/[^0-9]+/).includes(left?.epoch ?? ""), epochs);
  assert.deepEqual([new Set(ran).size, ran.length], [101, 101]);
});
