import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { TenantId } from "../../src/core/ids.ts";
import { cancelActivation } from "../../src/sessions/activation.store.ts";
import type { Arena } from "./arena.ts";
import { openControllerHost } from "./controller-host.ts";
import { type Sessions, sessionsOf } from "./sessions.ts";
import { assertNothingLeft } from "./settled.ts";
import { until } from "./until.ts";

// Every point of a turn: the controller's process is killed with SIGKILL there, another takes over once the lease has
// run out, and each turn has exactly one end, one revision and one reply, and ran as often as the record says.

/** A turn, and the moment at which its controller is killed. */
export interface TurnVictim {
  readonly moment: string;
  /** Cancelled once it runs. */
  readonly cancelled?: boolean;
}

const around = (...transitions: string[]) =>
  transitions.flatMap((name) => [`commit ${name}`, `committed ${name}`]);
const outside = (...calls: string[]) => calls.flatMap((name) => [`call ${name}`, `returned ${name}`]);

/** What is a turn's own, and one point of each step that it shares with every sandbox. */
export const turnVictims: readonly TurnVictim[] = [
  ...[
    ...around("startRun", "recordReading", "moveActivation", "verifyCandidate", "commitCheckpoint"),
    ...around("rest", "readInput", "promiseCandidate", "recordOutputArchive", "finishCleaning"),
    ...["held", "released", "stopped", "removed"].map((state) => `committed sandbox.${state}`),
    ...["appendProgress", "recordLogEnd"].map((name) => `committed ${name}`),
    ...outside("runtime.prepare", "runtime.release", "blobs.read"),
  ].map((moment) => ({ moment })),
  ...around("sandbox.stopping", "moveActivation").map((moment) => ({ moment, cancelled: true })),
];

export interface Turn extends TurnVictim {
  readonly tenant: TenantId;
  readonly sessions: Sessions;
  readonly session: string;
  readonly activation: string;
  readonly mark: string;
}

export async function crashTurns(arena: Arena, victims: readonly TurnVictim[], round: number): Promise<void> {
  const prepared = await Promise.all(
    victims.map(async (victim, index) => {
      const tenant = await arena.addTenant(`round-${round}-${index}`);
      const sessions = sessionsOf(arena.foundation.db, tenant);
      await sessions.agent("notes");
      const mark = join(arena.shared.directory, `mark-${round}-${index}`);
      return { ...victim, tenant, sessions, session: await sessions.create("notes"), mark };
    }),
  );
  // What there is to observe of new sessions is observed before, so that each moment is one of its turn.
  const first = await arena.controller();
  await untilRested(arena);
  await first.close();
  const victim = await arena.controller({
    stops: prepared.map(({ moment, tenant }) => ({ moment, nth: 1, how: "wait", tenant })),
  });
  const turns: Turn[] = await Promise.all(
    prepared.map(async (turn) => {
      const stimulus = { text: "one", mark: turn.mark, ...(turn.cancelled ? { until: "/nowhere" } : {}) };
      return { ...turn, activation: await turn.sessions.tell(turn.session, stimulus) };
    }),
  );
  await Promise.all(
    turns
      .filter(({ cancelled }) => cancelled)
      .map(async (turn) => {
        await until("it runs", async () => (await marksOf(turn)).length > 0, 60_000);
        await cancel(turn);
      }),
  );
  await Promise.all(
    turns.map(async ({ tenant, moment }) => {
      let came = false;
      void victim
        .heard("at", (news) => news.tenant === tenant)
        .then(
          () => {
            came = true;
          },
          () => undefined,
        );
      await until(`"${moment}" comes`, () => came, 90_000);
    }),
  );
  victim.signal("SIGKILL");
  assert.equal(await victim.ended, "SIGKILL");
  const successor = await openControllerHost(arena.shared);
  try {
    arena.relay.point(successor.port);
    for (const turn of turns) await assertOneEnd(arena, turn);
    await untilRested(arena);
    await assertNothingLeft(arena);
  } finally {
    arena.relay.point(null);
    await successor.close();
  }
}

const cancel = ({ sessions, session, activation }: Turn) =>
  sessions.change("cancel", (tx) => cancelActivation(tx, { session, activation, reason: "not needed" }));

export const marksOf = async ({ mark }: Turn) =>
  (await readFile(mark, "utf8").catch(() => "")).split("\n").slice(0, -1);

export async function assertOneEnd(arena: Arena, turn: Turn): Promise<void> {
  const { session, activation, sessions, cancelled = false, moment } = turn;
  const row = await sessions.reaches(session, activation, undefined, 120_000);
  const why = `${moment}: ${row.failure_message ?? row.last_failure_message ?? ""}`;
  assert.equal(row.state, cancelled ? "cancelled" : "committed", why);
  // Nobody ran it again: what it was when its controller died is what it came to.
  assert.deepEqual([row.tries, await marksOf(turn)], [1, ["one"]], why);
  const [facts] = await arena.rows<Record<string, number>>(
    `select (select count(*)::int from holdfast.bundle_revisions where session_id = $1) as revisions,
       (select count(*)::int from holdfast.publication_outbox where session_id = $1) as replies,
       (select count(*)::int from holdfast.resource_changes
        where root_id = $1 and operation = 'activation.event') as events`,
    [session],
  );
  const once = cancelled ? 0 : 1;
  assert.deepEqual([facts?.["revisions"], facts?.["replies"]], [once, once], why);
  assert.ok((facts?.["events"] ?? 0) <= 1 && (cancelled || facts?.["events"] === 1), why);
}

export function untilRested(arena: Arena): Promise<unknown> {
  return until(
    "nothing is due any more",
    async () =>
      (await arena.rows("select from holdfast.leases where kind in ('session', 'activation')")).length === 0,
    120_000,
  );
}
