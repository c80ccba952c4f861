import { HoldfastError } from "../wire/holdfast-error.ts";
import type { AttemptView, SandboxView } from "../wire/job.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { UsageError } from "./failures.ts";
import { jobIdOf } from "./job-id.ts";
import { visible } from "./visible.ts";

export interface ConfirmFlags extends ServerFlags {
  readonly reason: string;
  /** Name or id. */
  readonly sandbox?: string;
}

/** `holdfast confirm-stopped JOB`: an operator's word for the sandbox of the job whose stop nothing can prove. */
export async function confirmStopped(
  context: CommandContext,
  typed: string,
  flags: ConfirmFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const job = await jobIdOf(client, typed);
  const { attempt, sandbox } = choose(await client.listAttempts(job), flags.sandbox);
  const { attempt: number } = attempt;
  const after = await client.confirmStopped(
    { job, attempt: number, sandbox: sandbox.id },
    { reason: flags.reason },
  );
  if (flags.output === "json") return printValue(context, "json", after);
  await context.terminal.out(
    `${visible(sandbox.name)} counts as stopped by your word; attempt ${number} of ${job} goes on\n`,
  );
}

function choose(
  attempts: readonly AttemptView[],
  named: string | undefined,
): { readonly attempt: AttemptView; readonly sandbox: SandboxView } {
  const inQuestion = attempts.flatMap((attempt) =>
    attempt.sandboxes
      .filter(({ stop_unproven, stopped_at }) => stop_unproven !== null && stopped_at === null)
      .map((sandbox) => ({ attempt, sandbox })),
  );
  const fitting =
    named === undefined
      ? inQuestion
      : inQuestion.filter(({ sandbox: { id, name } }) => id === named || name === named);
  const [first] = fitting;
  if (first === undefined) {
    throw new HoldfastError("conflict", "the job has no such sandbox whose stop is in question");
  }
  if (fitting.length > 1) {
    const names = fitting.map(({ sandbox }) => sandbox.name).join(", ");
    throw new UsageError(`several are in question: ${names}`, "Say which with --sandbox.");
  }
  return first;
}
