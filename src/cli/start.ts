import { randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Command } from "commander";
import { type Client, createClient } from "../client/client.ts";
import type { DevStack } from "../dev/stack.ts";
import { type ExitCode, exitCodes } from "../wire/exit-codes.ts";
import type { JobSubmission } from "../wire/job.ts";
import type { CommandContext } from "./context.ts";
import { addresses, type DevFlags, untilAborted, withDev, withDevFlags } from "./dev.ts";
import { writeVerified } from "./download.ts";
import { Exit, UsageError } from "./failures.ts";
import { numberFlag } from "./flags.ts";
import { followJob } from "./follow.ts";
import { livePresenter, plainPresenter } from "./presenters.ts";

interface StartFlags extends DevFlags {
  readonly exit?: boolean;
  readonly stepMs?: number;
}

/** What `npm start` runs: the whole system, and the example build through it to its artifact. */
export function startCommand(context: CommandContext): Command {
  return withDevFlags(new Command("start").description("what `npm start` runs: dev, and the example job"))
    .option("--exit", "end when the artifact is there")
    .addOption(
      numberFlag(
        "--step-ms <number>",
        "stretch each step of the example, to watch it or to kill it",
        0,
        60_000,
      ),
    )
    .addHelpText(
      "after",
      `
Examples:
  $ npm start                          build the example, then stay up
  $ npm start -- --exit                build it and end; the last line names the artifact
  $ npm start -- --step-ms 2000        slowly: kill it half-way, start it again, see it finish
  $ npm start -- --runtime kubernetes  as pods, of the image HOLDFAST_KUBERNETES_IMAGE with Node, git and tar`,
    )
    .action(async (flags: StartFlags) => {
      const example = await loadExample();
      const ended = await withDev(context, flags, async (dev, signal) => {
        const shared = (flags.runtime ?? context.config.runtime) === "process";
        const built = await buildExample(
          context,
          dev,
          example,
          { stepMs: flags.stepMs ?? 0, shared },
          signal,
        );
        if (flags.exit === true || signal.aborted) return built;
        await context.terminal.out(built.line);
        await context.terminal.out(addresses(dev));
        await untilAborted(signal, dev.broken);
        return { ...built, line: "" };
      });
      await context.terminal.out(ended.line);
      if (ended.code !== exitCodes.ok) throw new Exit(ended.code);
    });
}

type Example = Awaited<ReturnType<typeof loadExample>>;

/** The example lies beside the sources; the package is without it. */
async function loadExample() {
  try {
    return await import("../../examples/engine-module/prepare.ts");
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ERR_MODULE_NOT_FOUND")) throw error;
    throw new UsageError(
      "`start` builds the example of a checkout, and the package is without it",
      "`holdfast dev` runs the same system, `holdfast run FILE` a job of your own.",
    );
  }
}

interface Built {
  readonly code: ExitCode;
  /** The last line. */
  readonly line: string;
}

/**
 * Submit the example once and follow it to its end. Its idempotency key is kept until that, so a start after a
 * crash finds the job of the start before, wherever it is, and runs nothing twice.
 */
async function buildExample(
  context: CommandContext,
  dev: DevStack,
  { exampleJob, portableJob, prepareRepositories }: Example,
  /** Whether sandboxes see our disk. */
  { stepMs, shared }: { readonly stepMs: number; readonly shared: boolean },
  signal: AbortSignal,
): Promise<Built> {
  const { home } = dev;
  const { terminal } = context;
  const client = createClient({ url: dev.url, token: dev.token });
  if (stepMs > 0)
    await terminal.out(`process ${process.pid}: to try a crash, kill -9 ${process.pid} and start again\n`);
  const repositories = home.path("example");
  await mkdir(repositories, { recursive: true });
  await prepareRepositories(repositories);
  const idempotencyKey = home.state().exampleKey ?? `example-${stepMs}-${randomUUID()}`;
  home.save({ exampleKey: idempotencyKey });
  // The same key stands for the same job: one that was begun slowly is finished slowly.
  const [, begunStepMs = String(stepMs)] = /^example-(\d+)-/.exec(idempotencyKey) ?? [];
  const local = await exampleJob({ repositories, stepMs: Number(begunStepMs) });
  const submission = shared ? local : await portableJob(local, repositories);
  const presenter = terminal.live ? livePresenter(context) : plainPresenter(context);
  try {
    const job = await client.submitJob(submission as JobSubmission, { idempotencyKey, signal });
    const broken = dev.broken.then((error) => Promise.reject(error));
    const picture = await Promise.race([followJob(client, job.id, presenter, signal), broken]);
    const artifacts = picture.job.state === "succeeded" ? await client.listArtifacts(job.id) : [];
    await presenter.result(picture, artifacts);
    const [artifact] = artifacts;
    if (artifact === undefined) {
      home.save({ exampleKey: null });
      return {
        code: picture.job.state === "cancelled" ? exitCodes.job_cancelled : exitCodes.job_failed,
        line: "",
      };
    }
    const path = home.path("artifacts", job.id, artifact.name);
    await mkdir(join(path, ".."), { recursive: true });
    const { body } = await client.downloadArtifact(job.id, artifact.name);
    await writeVerified(path, artifact, body, true);
    home.save({ exampleKey: null });
    await untilCleaned(client, job.id, signal);
    return {
      code: exitCodes.ok,
      line: `artifact ${path} sha256:${artifact.sha256} ${artifact.bytes} bytes\n`,
    };
  } catch (error) {
    await presenter.close();
    if (!signal.aborted) throw error;
    return { code: exitCodes.interrupted, line: "Stopped. `npm start` goes on where it was.\n" };
  }
}

const cleanedMs = 15_000;

/** So that nothing of it is left outside when we end. Not for ever: the next start would clean it too. */
async function untilCleaned(client: Client, job: string, signal: AbortSignal): Promise<void> {
  const stop = AbortSignal.any([signal, AbortSignal.timeout(cleanedMs)]);
  while (!stop.aborted) {
    const attempts = await client.listAttempts(job);
    if (attempts.every(({ state }) => state === "cleaned")) return;
    await delay(200, undefined, { signal: stop }).catch(() => undefined);
  }
}
