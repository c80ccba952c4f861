import type { WorkStateName, WorkVersionView, WorkView } from "../client/client.ts";
import type { SuspensionReason } from "../wire/work.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { workIdOf } from "./job-id.ts";
import { getList, type ListFlags, printList, type Shown } from "./listing.ts";
import { age } from "./time-text.ts";
import { workColor, workLines } from "./work-words.ts";

interface WorkFlags extends ListFlags {
  readonly state?: WorkStateName;
  readonly name?: string;
  readonly version?: string;
  readonly queue?: string;
  readonly reason?: SuspensionReason;
}

/** `holdfast get work [ID…]`: newest first. */
export async function getWork(
  context: CommandContext,
  typed: readonly string[],
  flags: WorkFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const { state, name, version, queue, reason } = flags;
  await getList(
    context,
    flags,
    shown,
    (limit) => client.listWork({ state, name, version, queue, reason, limit }),
    { typed, get: async (text) => client.getWork(await workIdOf(client, text)) },
  );
}

export const shown: Shown<WorkView> = {
  kind: "work",
  heading: ["ID", "WORK", "STATE", "ATTEMPTS", "QUEUE", "AGE", "WHY"],
  row: (work, now) => [
    work.id,
    `${work.name} ${work.version}`,
    work.state,
    `${work.attempts}/${work.attempts_max}`,
    work.queue,
    age(work.accepted_at, now),
    work.suspended?.reason ?? work.failure?.code ?? "",
  ],
  nameOf: ({ id }) => id,
  none: "no work fits",
  color: (cell, column, colors) => (column === 2 ? workColor(cell, colors)(cell) : cell),
};

/** `holdfast describe work ID`: what was planned against what happened, in the words of a person. */
export async function describeWork(
  context: CommandContext,
  typed: string,
  flags: ServerFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const work = await client.getWork(await workIdOf(client, typed));
  if (flags.output === "json" || flags.output === "yaml") return printValue(context, flags.output, work);
  const { terminal, now } = context;
  await terminal.out(`${workLines(work, terminal.colors, now()).join("\n")}\n`);
}

/** `holdfast work versions [NAME]`. */
export async function listVersions(
  context: CommandContext,
  name: string | undefined,
  flags: ServerFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const versions = await client.listWorkVersions(name === undefined ? {} : { name });
  await printList(context, flags, shownVersions, versions, false);
}

const shownVersions: Shown<WorkVersionView> = {
  kind: "work-version",
  heading: ["NAME", "VERSION", "POLICY", "SAFETY", "QUEUE", "WORKERS", "AGE", "STANDING"],
  row: (version, now) => [
    version.name,
    version.version,
    version.policy,
    version.safety,
    version.queue,
    String(version.workers),
    age(version.registered_at, now),
    standing(version),
  ],
  nameOf: ({ name, version }) => `${name}/${version}`,
  none: "no version is registered: a worker registers those that it has",
  color: (cell, column, colors) =>
    column === 7 && cell.startsWith("waits for a worker") ? colors.yellow(cell) : cell,
};

/** One that has rows and nobody to run them is not silent. */
function standing({ workers, waiting, suspended, retired_at }: WorkVersionView): string {
  if (waiting && workers === 0) return "waits for a worker";
  const retired = retired_at === null ? "" : "retired, ";
  if (waiting) return retired === "" ? "has work" : "retired, drains";
  if (suspended) return `${retired}has suspended work`;
  return retired === "" ? "has no work" : "retired";
}
