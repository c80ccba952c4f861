import { after, describe, test } from "node:test";
import { openArena } from "../support/arena.ts";
import { crashTurns, turnVictims } from "../support/crash-turns.ts";

/** Turns that one kill ends; those that stand at a commit hold a connection each. */
const batchMax = 6;

describe("S7 S12: SIGKILL at each point of a turn", { concurrency: 1 }, async () => {
  const hooks: (() => void | Promise<void>)[] = [];
  after(async () => {
    for (const hook of hooks.toReversed()) await hook();
  });
  const arena = openArena({ after: (hook) => void hooks.push(hook) }, { leaseMs: 4_000 });
  const count = Math.ceil(turnVictims.length / batchMax);
  for (let round = 0; round < count; round += 1) {
    const victims = turnVictims.filter((_victim, index) => index % count === round);
    const points = victims.map(({ moment, cancelled }) => (cancelled ? `${moment} (cancelled)` : moment));
    test(points.join(", "), async () => crashTurns(await arena, victims, round));
  }
});
