import { brandId, type IncarnationId, uuidv7 } from "../../src/core/ids.ts";
import { claimLeases } from "../../src/core/lease.store.ts";
import type { HeldLease } from "../../src/core/lease.ts";
import { transition } from "../../src/core/postgres/transition.ts";
import { stampAll } from "../../src/core/sequencer.ts";
import { seconds } from "../../src/core/time.ts";
import { cancelActivation } from "../../src/sessions/activation.store.ts";
import {
  deleteOutputChunks,
  finishCleaning,
  readCleaning,
  recordCandidateRemoved,
  recordOutputArchive,
} from "../../src/sessions/clean.store.ts";
import { cleaningSteps } from "../../src/sessions/cleaning.ts";
import { activationRecords } from "../../src/sessions/run.store.ts";
import { createSession, deleteSession } from "../../src/sessions/session.store.ts";
import { tenantA } from "./kernel.ts";
import type { Turns, World } from "./turns.ts";

/** Clean up after everything that has ended, as a controller would, on the record alone. */
export async function cleanAll({ db }: Pick<Turns, "db">): Promise<void> {
  const holder = brandId<IncarnationId>(uuidv7());
  const claimed = await claimLeases(db, {
    kind: "activation",
    queue: "process",
    holder,
    limit: 1000,
    quota: 1000,
  });
  for (const lease of claimed) await cleanOne(db, lease);
}

async function cleanOne(db: Turns["db"], lease: HeldLease): Promise<void> {
  const records = activationRecords(db, lease, () => lease.resource);
  const view = await readCleaning(db, lease);
  for (const step of cleaningSteps(view)) {
    switch (step) {
      case "remove":
        for (const sandbox of view.sandboxes) await records.removed(sandbox);
        for (const candidate of view.lost) await recordCandidateRemoved(db, lease, candidate);
        break;
      case "archive":
        await recordOutputArchive(
          db,
          lease,
          { key: `log/${lease.resource}`, bytes: 1n, sha256: "0".repeat(64), lines: 1n },
          seconds(3600),
        );
        break;
      case "trim":
        for (const { id } of view.sandboxes) await deleteOutputChunks(db, lease, id);
        break;
      case "finish":
        if (!(await finishCleaning(db, lease, view))) throw new Error("it moved on while it was cleaned");
        break;
      default:
        step satisfies never;
    }
  }
}

/**
 * Sessions in which something of everything has happened: committed with and without a change, copied, waiting for a
 * permission, failed, cancelled, deleted, running with others behind it, and never begun.
 */
export async function liveThroughSessions(turns: Turns): Promise<void> {
  const { db } = turns;
  const gateway = { role: "gateway", tenant: tenantA, name: "live" } as const;
  const agent = await turns.agent("notes");
  const settle = async (session: string, world?: World) => {
    const lease = await turns.claim(session);
    await turns.driveTo(lease, "rest", world);
    await turns.step(lease);
  };

  const talk = await turns.session(agent);
  await turns.admit(talk);
  await turns.admit(talk);
  await settle(talk, { lines: ['{"type":"event","name":"told","data":{}}'] });
  await turns.admit(talk);
  await settle(talk, { content: null });
  await transition(db, gateway, (tx) => createSession(tx, { agent, from: { session: talk, revision: 2n } }));

  const failed = await turns.session(await turns.agent(undefined, { tries: 1 }));
  await turns.admit(failed);
  await settle(failed, { exitCode: 1 });
  const cancelled = await turns.session(agent);
  const unwanted = await turns.admit(cancelled);
  await transition(db, gateway, (tx) =>
    cancelActivation(tx, { session: cancelled, activation: unwanted, reason: "not needed" }),
  );
  await settle(cancelled);
  const waiting = await turns.session(agent);
  await turns.admit(waiting);
  const action = { type: "grant_permission", permission: "notes.write", reason: "to write" } as const;
  await settle(waiting, { content: null, outcome: { required_action: action } });
  await cleanAll(turns);

  const deleted = await turns.session(agent);
  await turns.admit(deleted);
  await settle(deleted);
  await transition(db, gateway, (tx) => deleteSession(tx, { session: deleted, reason: "not needed" }));
  await settle(deleted);

  const busy = await turns.session(agent);
  await turns.admit(busy);
  await turns.admit(busy);
  await turns.driveTo(await turns.claim(busy), "read");
  await turns.session(agent);
  await stampAll(db, 1000);
}
