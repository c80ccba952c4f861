import { join, resolve } from "node:path";
import { Command, Option } from "commander";
import { resetHome } from "../dev/reset.ts";
import { type DevStack, startDev } from "../dev/stack.ts";
import { openLog } from "../main/log.ts";
import { type RuntimeKind, runtimeKinds } from "../main/runtimes.ts";
import type { CommandContext } from "./context.ts";
import { numberFlag } from "./flags.ts";
import { onInterrupt } from "./interrupt.ts";

export interface RuntimeFlags {
  readonly runtime?: RuntimeKind;
}

export const runtimeFlag = (): Option =>
  new Option("--runtime <kind>", "where phases run (or HOLDFAST_RUNTIME)").choices(runtimeKinds);

export interface DevFlags extends RuntimeFlags {
  readonly directory?: string;
  readonly port?: number;
  readonly reset?: boolean;
}

/** The flags of every command that runs the development stack. */
export function withDevFlags(command: Command): Command {
  return command
    .addOption(
      numberFlag("--port <number>", "port of the API (0: any free one; or HOLDFAST_PORT)", 0, 65_535),
    )
    .addOption(
      new Option("--directory <folder>", "where the store and everything of it lives").default(".holdfast"),
    )
    .addOption(runtimeFlag())
    .option("--reset", "remove jobs, output and artifacts in that folder first; secrets stay");
}

export function devCommand(context: CommandContext): Command {
  return withDevFlags(new Command("dev").description("PostgreSQL and the whole system in one process"))
    .addHelpText(
      "after",
      `
Examples:
  $ holdfast dev                 on the usual port, in .holdfast
  $ holdfast dev --port 8080     on another port
  $ holdfast dev --reset         begin with an empty store

Everything listens on loopback. Phases run as processes of this user: nothing isolates them. With --runtime
kubernetes they run as pods, which must reach HOLDFAST_CALLBACK_URL, served on HOLDFAST_CALLBACK_HOST here.`,
    )
    .action(async (flags: DevFlags) => {
      await withDev(context, flags, async (dev, signal) => {
        await context.terminal.out(addresses(dev));
        await untilAborted(signal, dev.broken);
      });
    });
}

/** Run the stack for as long as the body takes. Ctrl-C and SIGTERM abort its signal and stop everything cleanly. */
export async function withDev<T>(
  context: CommandContext,
  flags: DevFlags,
  body: (dev: DevStack, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const { config, terminal } = context;
  const directory = resolve(context.directory, flags.directory ?? ".holdfast");
  const interrupt = onInterrupt();
  const announce = (line: string) => void terminal.out(`${line}\n`);
  try {
    if (flags.reset === true) await resetHome(directory, announce);
    const dev = await startDev({
      directory,
      host: config.host,
      port: flags.port ?? config.port,
      release: context.version,
      retention: config.artifactRetention,
      queueMax: config.queueMax,
      logBytesMax: BigInt(config.logBytesMax),
      logRetention: config.logRetention,
      runtime: { kind: flags.runtime ?? config.runtime, config },
      log: openLog(config.logLevel === "info" ? "warn" : config.logLevel, process.stderr),
      announce,
    });
    try {
      return await body(dev, interrupt.signal);
    } finally {
      if (interrupt.signal.aborted) announce("stopping");
      await dev.close();
    }
  } finally {
    interrupt.stop();
  }
}

export function addresses(dev: DevStack): string {
  return `
Holdfast is up:  ${dev.url}
console:         ${dev.url}/console
token:           ${dev.token}
store:           ${join(dev.home.directory, "postgres")}

  npx holdfast get jobs          what there is
  npx holdfast run job.yaml      run one of your own
  Ctrl-C                         stop; what is running goes on at the next start

`;
}

/** Rejects when what everything stands on is gone. */
export async function untilAborted(signal: AbortSignal, broken: Promise<Error>): Promise<void> {
  const aborted = new Promise<null>((done) => {
    if (signal.aborted) done(null);
    signal.addEventListener("abort", () => done(null), { once: true });
  });
  const error = await Promise.race([aborted, broken]);
  if (error !== null && !signal.aborted) throw error;
}
