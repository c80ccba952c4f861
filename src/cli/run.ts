import { randomUUID } from "node:crypto";
import type { Client } from "../client/client.ts";
import { type ExitCode, exitCodes } from "../wire/exit-codes.ts";
import type { JobState, JobView } from "../wire/job.ts";
import { type CommandContext, clientOf, type ServerFlags } from "./context.ts";
import { Exit } from "./failures.ts";
import { followJob } from "./follow.ts";
import { Interrupted, onInterrupt } from "./interrupt.ts";
import { readJob } from "./job-source.ts";
import { jsonPresenter, livePresenter, type Presenter, plainPresenter } from "./presenters.ts";
import { programName } from "./program-name.ts";

export interface RunFlags extends ServerFlags {
  readonly label: Readonly<Record<string, string>>;
  readonly priority?: number;
  readonly idempotencyKey?: string;
  readonly detach?: boolean;
}

/** `holdfast run FILE`: submit a job and follow it to its end. */
export async function run(context: CommandContext, file: string, flags: RunFlags): Promise<void> {
  const submission = await readJob(file, { labels: flags.label, priority: flags.priority });
  const client = clientOf(context, flags);
  const idempotencyKey = flags.idempotencyKey ?? randomUUID();
  const interrupt = onInterrupt();
  try {
    const job = await client
      .submitJob(submission, { idempotencyKey, signal: interrupt.signal })
      .catch(async (error: unknown) => {
        if (!(error instanceof Interrupted)) throw error;
        await context.terminal.err(
          `Interrupted while submitting: the job may have been accepted. The same command with\n--idempotency-key ${idempotencyKey} shows it, and submits it only once.\n`,
        );
        throw new Exit(exitCodes.interrupted);
      });
    if (flags.detach === true) return await printSubmitted(context, flags, job);
    throw new Exit(await follow(context, client, flags, job, interrupt.signal));
  } finally {
    interrupt.stop();
  }
}

async function printSubmitted({ terminal }: CommandContext, flags: RunFlags, job: JobView): Promise<void> {
  if (flags.output === "json") return terminal.out(`${JSON.stringify(job, null, 2)}\n`);
  await terminal.out(`${job.id}\n`);
  if (terminal.live) await terminal.err(`follow it with: ${programName} logs -f ${job.id}\n`);
}

async function follow(
  context: CommandContext,
  client: Client,
  flags: RunFlags,
  job: JobView,
  signal: AbortSignal,
): Promise<ExitCode> {
  const presenter = presenterOf(context, flags);
  try {
    const picture = await followJob(client, job.id, presenter, signal);
    const artifacts = picture.job.state === "succeeded" ? await client.listArtifacts(job.id) : [];
    await presenter.result(picture, artifacts);
    return exitCodeOfState(picture.job.state);
  } catch (error) {
    await presenter.close();
    if (!(error instanceof Interrupted)) throw error;
    await context.terminal.err(
      `Detached: the job goes on.\n  follow:  ${programName} logs -f ${job.id}\n  cancel:  ${programName} cancel ${job.id}\n`,
    );
    return exitCodes.interrupted;
  }
}

function presenterOf(context: CommandContext, flags: RunFlags): Presenter {
  if (flags.output === "json") return jsonPresenter(context);
  return context.terminal.live ? livePresenter(context) : plainPresenter(context);
}

function exitCodeOfState(state: JobState): ExitCode {
  switch (state) {
    case "succeeded":
      return exitCodes.ok;
    case "failed":
      return exitCodes.job_failed;
    case "cancelled":
      return exitCodes.job_cancelled;
    case "queued":
    case "running":
      return exitCodes.failure;
  }
}
