import type { Client } from "../client/client.ts";
import type { JobPatch, JobView } from "../wire/job.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { UsageError } from "./failures.ts";
import { jobIdOf } from "./job-id.ts";
import { visible } from "./visible.ts";

export interface PatchFlags extends ServerFlags {
  readonly priority?: number;
  readonly label: Readonly<Record<string, string>>;
}

/** `holdfast patch ID`: change what may change after a job was submitted. */
export async function patch(context: CommandContext, typed: string, flags: PatchFlags): Promise<void> {
  const change: JobPatch = {
    ...(flags.priority === undefined ? {} : { priority: flags.priority }),
    ...(Object.keys(flags.label).length === 0 ? {} : { labels: flags.label }),
  };
  if (Object.keys(change).length === 0) throw new UsageError("nothing to change: give --priority or --label");
  await apply(context, typed, flags, change);
}

/** `holdfast label ID key=value key-`: set labels, and take away those that end with `-`. */
export async function label(
  context: CommandContext,
  typed: string,
  words: readonly string[],
  flags: ServerFlags,
): Promise<void> {
  const labels: Record<string, string | null> = {};
  for (const word of words) {
    const [, key = "", value] = /^([^=]+)=(.*)$/s.exec(word) ?? [];
    if (value !== undefined) labels[key] = value;
    else if (/^[^=]+-$/.test(word)) labels[word.slice(0, -1)] = null;
    else throw new UsageError(`${JSON.stringify(word)} is neither key=value nor key-`);
  }
  await apply(context, typed, flags, { labels });
}

async function apply(
  context: CommandContext,
  typed: string,
  { output, ...flags }: ServerFlags,
  change: JobPatch,
): Promise<void> {
  const client = clientOf(context, flags);
  const job = await patched(client, await jobIdOf(client, typed), change);
  if (output === "json" || output === "yaml") return printValue(context, output, job);
  if (output === "name") return context.terminal.out(`job/${job.id}\n`);
  await context.terminal.out(`${job.id} ${visible(job.name)} changed, version ${job.resource_version}\n`);
}

/** The change says all that it means, so that a job which moved on in between is simply read again. */
async function patched(client: Client, id: string, change: JobPatch): Promise<JobView> {
  for (let tries = 1; ; tries += 1) {
    const job = await client.getJob(id);
    try {
      return await client.patchJob(id, change, { ifMatch: client.etagOf(job) });
    } catch (error) {
      const stale = error instanceof Error && "code" in error && error.code === "precondition_failed";
      if (!stale || tries >= 5) throw error;
    }
  }
}
