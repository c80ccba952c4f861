import { access, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { SandboxOutcome } from "../../core/runtime.port.ts";
import { endCarriers, selectCarriers } from "./carriers.ts";
import { create, isCode, readRecord } from "./durable.ts";
import { toJson } from "./fields.ts";
import { type ProcessIdentity, presence, thisHost } from "./identity.ts";
import { type Folder, files, sandboxMarker, supervisorMarker } from "./layout.ts";
import { readProcesses } from "./process-table.ts";
import {
  type CommandRecord,
  firstState,
  now,
  type OutcomeRecord,
  type RequestRecord,
  readClaim,
  readCommand,
  readOutcome,
  readRequest,
  readState,
  type StateRecord,
} from "./records.ts";

const endMilliseconds = 5_000;
const farewellMilliseconds = 3_000;

/** What can be shown about an object. `stopped` is evidence: see `conclude` for when there is no record. */
export type Look =
  | { readonly kind: "absent" }
  /** Published, but no supervisor has claimed it yet. */
  | { readonly kind: "unclaimed"; readonly request: RequestRecord }
  | { readonly kind: "live"; readonly socket: string; readonly state: StateRecord }
  | { readonly kind: "stopped"; readonly record: OutcomeRecord }
  | { readonly kind: "unproven"; readonly reason: string };

const within = (folder: Folder, file: string): string => join(folder.path, file);

export const readEnd = (folder: Folder): Promise<OutcomeRecord | null> =>
  readRecord(within(folder, files.outcome), readOutcome);

export const readStanding = (folder: Folder): Promise<StateRecord | null> =>
  readRecord(within(folder, files.state), readState);

export const readCommandRecord = (folder: Folder): Promise<CommandRecord | null> =>
  readRecord(within(folder, files.command), readCommand);

export async function look(folder: Folder): Promise<Look> {
  const record = await readEnd(folder);
  if (record !== null) return { kind: "stopped", record };
  const request = await readRecord(within(folder, files.request), readRequest);
  if (request === null) return { kind: "absent" };
  const claim = await readRecord(within(folder, files.claim), readClaim);
  if (claim === null) {
    const overdue = now() > request.createdAt + request.holdLimit;
    return overdue
      ? close(folder, "nobody released it within its hold limit")
      : { kind: "unclaimed", request };
  }
  if (claim.kind === "closed") {
    await rm(within(folder, files.private), { force: true });
    return settle(folder, neverStarted(claim.message), "no supervisor was started, and none can be any more");
  }
  switch (await presence(claim.identity)) {
    case "alive":
      return {
        kind: "live",
        socket: claim.socket,
        state: (await readStanding(folder)) ?? firstState(request),
      };
    case "elsewhere":
      return { kind: "unproven", reason: "its supervisor belongs to another pid namespace" };
    case "gone":
      return conclude(folder, claim.identity);
  }
}

/** See to it that no supervisor can ever claim it. When one was quicker, look at that. */
export async function close(folder: Folder, message: string): Promise<Look> {
  await create(within(folder, files.claim), toJson({ kind: "closed", message }));
  return look(folder);
}

/**
 * The supervisor is gone. If it left no outcome, end what it left running and record that; it can't have
 * left a way to start the command again, because only it could.
 */
async function conclude(folder: Folder, supervisor: ProcessIdentity): Promise<Look> {
  // It may have recorded the outcome after we looked and before it ended.
  const record = await readEnd(folder);
  if (record !== null) return { kind: "stopped", record };
  const command = await readCommandRecord(folder);
  const rebooted = (await thisHost()).boot !== supervisor.boot;
  const obstacle = rebooted ? null : await endLeftovers(folder, command);
  if (obstacle !== null) return { kind: "unproven", reason: obstacle };

  const started = await exists(within(folder, files.started));
  const why = rebooted ? "the host was restarted" : "its supervisor ended without a record";
  const outcome: SandboxOutcome = started
    ? { ...neverStarted(why), kind: "lost", message: `How it ended is lost: ${why}.` }
    : neverStarted(why);
  const gone = `supervisor gone (boot ${supervisor.boot}, pid ${supervisor.pid}, start ${supervisor.startTime})`;
  const proof = rebooted ? `${gone}, host restarted` : `${gone}, no process with its marker`;
  return settle(folder, { ...outcome, startedAt: command?.startedAt ?? null }, proof);
}

/** Null when nothing of it is left, else what stands against that. */
async function endLeftovers(folder: Folder, command: CommandRecord | null): Promise<string | null> {
  const { uid } = folder;
  const marks = [sandboxMarker(uid), supervisorMarker(uid)];
  const table = await readProcesses();
  const leader = table.find((entry) => entry.pid === command?.pid);
  // The number of the command's session is still its own while its leader lives.
  const ours = command !== null && leader !== undefined && leader.startTime === command.startTime;
  const belonging = { marks, session: ours ? command.pid : null, except: process.pid };
  if (!(await endCarriers(belonging, endMilliseconds))) return "processes of it are left and can't be killed";
  if (command === null || leader !== undefined) return null;
  // A session without its leader: very likely ours, but the number may have been used again since.
  const orphans = selectCarriers(await readProcesses(), { ...belonging, marks: [], session: command.pid });
  return orphans.length === 0 ? null : "processes without its marker are left in the command's session";
}

/** A supervisor ends right after it has recorded the outcome. Wait for that, so that nothing outlives the folder. */
export async function supervisorEnded(folder: Folder, signal: AbortSignal): Promise<void> {
  const claim = await readRecord(within(folder, files.claim), readClaim);
  if (claim?.kind !== "supervisor") return;
  const until = performance.now() + farewellMilliseconds;
  while (performance.now() < until && (await presence(claim.identity)) === "alive") {
    await delay(5, undefined, { signal });
  }
}

/** Whether any process still carries the marks of this UID, for an object whose folder can't be found. */
export async function runsWithoutFolder(uid: string): Promise<boolean> {
  const belonging = {
    marks: [sandboxMarker(uid), supervisorMarker(uid)],
    session: null,
    except: process.pid,
  };
  return selectCarriers(await readProcesses(), belonging).length > 0;
}

/** Whoever records first is right: everybody reads that record from then on. */
async function settle(folder: Folder, outcome: SandboxOutcome, proof: string): Promise<Look> {
  const record: OutcomeRecord = { outcome: { ...outcome, finishedAt: now() }, proof };
  await create(within(folder, files.outcome), toJson(record));
  return { kind: "stopped", record: (await readEnd(folder)) ?? record };
}

const neverStarted = (why: string): SandboxOutcome => ({
  kind: "never_started",
  exitCode: null,
  signal: null,
  message: `It never started: ${why}.`,
  startedAt: null,
  finishedAt: null,
});

async function exists(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch (error) {
    if (isCode(error, "ENOENT")) return false;
    throw error;
  }
}
