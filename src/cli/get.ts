import type { Client, JobFilter } from "../client/client.ts";
import type { JobState, JobView } from "../wire/job.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { jobIdOf } from "./job-id.ts";
import { stateColor } from "./job-words.ts";
import { spelled } from "./program-name.ts";
import { tableText } from "./table.ts";
import { age } from "./time-text.ts";
import { watchChanges } from "./watch-changes.ts";

export interface GetFlags extends ServerFlags {
  readonly state?: JobState;
  readonly label: Readonly<Record<string, string>>;
  readonly name?: string;
  readonly limit: number;
  readonly watch?: boolean;
}

/** `holdfast get jobs [ID…]`: newest first. */
export async function getJobs(
  context: CommandContext,
  typed: readonly string[],
  flags: GetFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  // Read before the jobs are, so that watching from it misses nothing.
  const cursor = flags.watch === true ? (await client.listJobs({ limit: 1 }).page()).cursor : undefined;
  const jobs = typed.length > 0 ? await named(client, typed) : await listed(client, flags);
  await print(context, flags, jobs, typed.length === 1);
  if (cursor === undefined) return;
  const ids = new Set(jobs.map(({ id }) => id));
  for await (const { kind, id } of watchChanges(client, { after: cursor, kind: "job" })) {
    if (kind !== "job" || (typed.length > 0 && !ids.has(id))) continue;
    const job = await client.getJob(id);
    if (typed.length > 0 || fits(job, flags)) await print(context, flags, [job], true);
  }
}

async function named(client: Client, typed: readonly string[]): Promise<JobView[]> {
  const jobs: JobView[] = [];
  for (const text of typed) jobs.push(await client.getJob(await jobIdOf(client, text)));
  return jobs;
}

async function listed(client: Client, flags: GetFlags): Promise<JobView[]> {
  const filter: JobFilter = { state: flags.state, labels: flags.label, name: flags.name };
  const jobs: JobView[] = [];
  for await (const job of client.listJobs({ ...filter, limit: Math.min(flags.limit, 200) })) {
    jobs.push(job);
    if (jobs.length >= flags.limit) break;
  }
  return jobs;
}

function fits(job: JobView, { state, label, name }: GetFlags): boolean {
  if (state !== undefined && job.state !== state) return false;
  if (name !== undefined && job.name !== name) return false;
  return Object.entries(label).every(([key, value]) => job.labels[key] === value);
}

const noJobs = spelled("no jobs; `holdfast run FILE` submits one\n");

function filtered({ state, name, label }: GetFlags): boolean {
  return state !== undefined || name !== undefined || Object.keys(label).length > 0;
}

async function print(
  context: CommandContext,
  flags: GetFlags,
  jobs: readonly JobView[],
  single: boolean,
): Promise<void> {
  const { terminal, now } = context;
  const { output, watch } = flags;
  switch (output) {
    case "json":
      if (watch === true) {
        return terminal.out(jobs.map((job) => `${JSON.stringify(job)}\n`).join(""));
      }
      return printValue(context, "json", single ? jobs[0] : { items: jobs });
    case "yaml":
      return printValue(context, "yaml", single ? jobs[0] : { items: jobs });
    case "name":
      return terminal.out(jobs.map(({ id }) => `job/${id}\n`).join(""));
    case "text":
    case undefined:
      break;
  }
  if (jobs.length === 0) return terminal.err(filtered(flags) ? "no job fits\n" : noJobs);
  const rows = jobs.map((job) => [
    job.id,
    job.name,
    job.cancel_requested_at !== null && job.finished_at === null ? "cancelling" : job.state,
    String(job.priority),
    String(job.attempts),
    age(job.created_at, now()),
    Object.entries(job.labels)
      .map(([key, value]) => `${key}=${value}`)
      .join(","),
  ]);
  const heading = ["ID", "NAME", "STATE", "PRIORITY", "ATTEMPTS", "AGE", "LABELS"];
  const color = (cell: string, column: number) =>
    column === 2 ? stateColor(cell, terminal.colors)(cell) : cell;
  await terminal.out(tableText(heading, rows, color));
}
