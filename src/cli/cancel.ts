import { type CommandContext, clientOf, type ServerFlags } from "./context.ts";
import { Exit, failureOf, failureText } from "./failures.ts";
import { jobIdOf } from "./job-id.ts";
import { stateWords } from "./job-words.ts";
import { visible } from "./visible.ts";

export interface CancelFlags extends ServerFlags {
  readonly reason?: string;
}

/** `holdfast cancel ID…`: asks for each; one that can't be cancelled does not keep the others from it. */
export async function cancel(
  context: CommandContext,
  typed: readonly string[],
  flags: CancelFlags,
): Promise<void> {
  const { terminal } = context;
  const client = clientOf(context, flags);
  let failed: unknown;
  for (const text of typed) {
    try {
      const job = await client.cancelJob(await jobIdOf(client, text), { reason: flags.reason });
      if (flags.output === "json") await terminal.out(`${JSON.stringify(job)}\n`);
      else if (flags.output === "name") await terminal.out(`job/${job.id}\n`);
      else await terminal.out(`${job.id} ${visible(job.name)} ${stateWords(job)}\n`);
    } catch (error) {
      if (typed.length === 1) throw error;
      if (flags.output === "json") await terminal.err(`${JSON.stringify({ error: failureOf(error) })}\n`);
      else await terminal.err(failureText(error, terminal.errorColors));
      failed ??= error;
    }
  }
  if (failed !== undefined) throw new Exit(failureOf(failed).exit_code);
}
