import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { cancelActivation } from "../../src/sessions/activation.store.ts";
import { type Arena, openArena } from "./arena.ts";
import { type ControllerHost, openControllerHost } from "./controller-host.ts";
import { assertOneEnd, marksOf, type Turn, untilRested } from "./crash-turns.ts";
import { sessionsOf } from "./sessions.ts";
import { assertNothingLeft } from "./settled.ts";
import { until } from "./until.ts";

// As in zombies.ts, for the turns of a session: a controller is suspended with SIGSTOP at a named moment until its
// lease has run out and another has taken over. Resumed, it goes on where it was, deaf to the loss, and is refused.

const leaseMs = 3_000;
/** How many scenarios run at once, each on a store of its own. */
const lanes = 2;

export interface TurnZombie {
  readonly at: string;
  /** When it is resumed: while the other runs the turn, or after the other has brought everything to its end. */
  readonly resumed: "while it runs" | "after its end";
  /** What of the resumed one is refused, by the database (`fenced`) or by the outside. */
  readonly refused: readonly [what: string, why: string];
  /** It is cancelled while its controller is suspended. */
  readonly cancelled?: true;
}

const fenced = (name: string, resumed: TurnZombie["resumed"]): TurnZombie => ({
  at: `begin ${name}`,
  resumed,
  refused: [name, "fenced"],
});

export const turnZombies: readonly TurnZombie[] = [
  ...["startRun", "sandbox.held", "sandbox.released", "appendProgress"].map((name) =>
    fenced(name, "while it runs"),
  ),
  ...["prepare", "release"].map(
    (name): TurnZombie => ({
      at: `call runtime.${name}`,
      resumed: "while it runs",
      refused: [`runtime.${name}`, "superseded"],
    }),
  ),
  ...["recordReading", "sandbox.stopped", "recordLogEnd", "moveActivation", "verifyCandidate"].map((name) =>
    fenced(name, "after its end"),
  ),
  fenced("commitCheckpoint", "after its end"),
  { ...fenced("commitCheckpoint", "after its end"), cancelled: true },
  ...["rest", "sandbox.removed", "recordOutputArchive", "finishCleaning"].map((name) =>
    fenced(name, "after its end"),
  ),
];

let made = 0;

async function suspendAndResume(arena: Arena, zombie: TurnZombie): Promise<void> {
  const number = (made += 1);
  const tenant = await arena.addTenant(`turn-${number}`);
  const sessions = sessionsOf(arena.foundation.db, tenant);
  // A run that speaks to the one that is suspended bears its silence before it asks again.
  await sessions.agent("notes", { timeout: "3m" });
  const session = await sessions.create("notes");
  // What there is to observe of a new session is observed before, so that the moment is one of its turn.
  const before = await arena.controller();
  await untilRested(arena);
  await before.close();

  const first = await arena.controller({ stops: [{ moment: zombie.at, nth: 1, how: "wait", tenant: "" }] });
  const mark = join(arena.shared.directory, `mark-${number}`);
  const gate = join(arena.shared.directory, `gate-${number}`);
  const waits = zombie.resumed === "while it runs";
  const stimulus = { text: "one", mark, ...(waits ? { until: gate } : {}) };
  const activation = await sessions.tell(session, stimulus);
  const { at: moment, cancelled = false } = zombie;
  const turn: Turn = { moment, cancelled, tenant, sessions, session, activation, mark };
  await first.heard("at");
  first.signal("SIGSTOP");
  if (cancelled) {
    await sessions.change("cancel", (tx) =>
      cancelActivation(tx, { session, activation, reason: "not needed" }),
    );
  }
  const successor = await openControllerHost(arena.shared);
  try {
    arena.relay.point(successor.port);
    await takenOver(arena, successor);
    if (waits) await until("the other runs it", async () => (await marksOf(turn)).length > 0, 60_000);
    else await untilRested(arena);

    const record = await versions(arena);
    first.go();
    first.signal("SIGCONT");
    const [what, why] = zombie.refused;
    await first.heard("refused", (news) => news.what === what && news.why === why);
    if (!waits) assert.deepEqual(await versions(arena), record, "it changed nothing");

    await writeFile(gate, "");
    await assertOneEnd(arena, turn);
    await untilRested(arena);
    await first.close();
    await assertNothingLeft(arena);
  } finally {
    arena.relay.point(null);
    await successor.close();
  }
}

function takenOver(arena: Arena, successor: ControllerHost): Promise<unknown> {
  const { holder } = successor.foundation;
  return until(
    "another holds the leases, or is done with them",
    async () => {
      const held = await arena.rows<{ holder: string | null }>(
        "select holder from holdfast.leases where kind in ('session', 'activation') and holder is not null",
      );
      return held.every((lease) => lease.holder === holder);
    },
    60_000,
  );
}

/** What the record says of everything: any write moves one of these. */
function versions(arena: Arena): Promise<unknown[]> {
  return arena.rows(
    `select (select count(*) from holdfast.resource_changes) as changes,
       (select count(*) from holdfast.log_chunks) as chunks,
       (select count(*) from holdfast.publication_outbox) as replies,
       (select jsonb_agg(to_jsonb(a) order by a.activation_uid) from holdfast.activations a) as activations,
       (select jsonb_agg(to_jsonb(s) order by s.session_id) from holdfast.cloud_sessions s) as sessions,
       (select jsonb_agg(to_jsonb(r) order by r.session_id, r.revision) from holdfast.bundle_revisions r) as revisions,
       (select jsonb_agg(to_jsonb(s) order by s.sandbox_id) from holdfast.sandbox_attempts s) as sandboxes`,
  );
}

export function turnsSuspendedAtEachMoment(title: string, zombies: readonly TurnZombie[]): void {
  describe(title, { concurrency: lanes }, () => {
    const free: Promise<Arena>[] = [];
    const hooks: (() => void | Promise<void>)[] = [];
    after(async () => {
      for (const hook of hooks.toReversed()) await hook();
    });

    for (const zombie of zombies) {
      const { at, resumed, refused, cancelled } = zombie;
      const when = cancelled === true ? `${resumed}, which was a cancellation` : resumed;
      test(`at "${at}", ${when}: it is refused ${refused.join(": ")}`, async () => {
        const arena = await (free.pop() ??
          openArena({ after: (hook) => void hooks.push(hook) }, { leaseMs }));
        await suspendAndResume(arena, zombie);
        free.push(Promise.resolve(arena));
      });
    }
  });
}
