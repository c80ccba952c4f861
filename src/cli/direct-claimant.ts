import { hostname } from "node:os";
import { Command, Option } from "commander";
import { assertSet, databaseOf, required } from "../config.ts";
import { isHoldfastError } from "../core/errors.ts";
import { isTenantId, type TenantId } from "../core/ids.ts";
import { startDirectClaimant } from "../executions/direct-claimant.ts";
import { containersOf } from "../executions/direct-container.ts";
import { openLog } from "../main/log.ts";
import { openFoundation } from "../main/process.ts";
import type { CommandContext } from "./context.ts";
import { UsageError } from "./failures.ts";
import { numberFlag } from "./flags.ts";
import { onInterrupt } from "./interrupt.ts";

interface DirectClaimantFlags {
  readonly tenant: string;
  readonly host: string;
  readonly jobs: number;
}

/** `holdfast direct-claimant`: the older claimant (E13). */
export function directClaimantCommand(context: CommandContext): Command {
  return new Command("direct-claimant")
    .description("run historical jobs, which nobody enrolled, as containers of this host")
    .requiredOption("--tenant <id>", "whose jobs")
    .addOption(
      new Option(
        "--host <name>",
        "this host's name in claims; keep it, so that it finds its own again",
      ).default(hostname()),
    )
    .addOption(numberFlag("--jobs <number>", "so many at once", 1, 64).default(1))
    .addHelpText(
      "after",
      `
Examples:
  $ HOLDFAST_DATABASE_URL=… HOLDFAST_INSTALLATION=prod holdfast direct-claimant --tenant acme

Phases run one after the other with \`docker\`, or what HOLDFAST_DIRECT_COMMAND names. Jobs with sources or secrets
are refused: only executions have these. SIGTERM leaves containers running; the next start on this host goes on.`,
    )
    .action((flags: DirectClaimantFlags) => runClaimant(context, flags));
}

async function runClaimant(context: CommandContext, flags: DirectClaimantFlags): Promise<void> {
  const { config, terminal } = context;
  const tenant = tenantOf(flags.tenant);
  const host = hostOf(flags.host);
  assertSet(config, ["database", "installation"]);
  const installation = required(config, "installation");
  const containers = containersOf({ command: config.directCommand, installation, tenant });
  await containers.check();
  const interrupt = onInterrupt();
  const log = openLog(config.logLevel);
  try {
    const foundation = await openFoundation({
      settings: databaseOf(config),
      process: "direct-claimant",
      release: context.version,
      installation,
      kinds: [],
      log,
    });
    try {
      const claimant = await startDirectClaimant({
        db: foundation.db,
        tenant,
        host,
        containers,
        jobsMax: flags.jobs,
        changes: (owner, root, onChange) => foundation.reader.subscribe({ tenant: owner, root }, onChange),
        onError(error) {
          if (isHoldfastError(error, "fenced")) log.warn({ err: error }, "a claim was lost");
          else log.error({ err: error }, "a job could not be taken further now, and is tried again");
        },
      });
      await terminal.out(`direct claimant of ${tenant} on ${host}, with ${config.directCommand}\n`);
      await aborted(interrupt.signal);
      await claimant.stop();
    } finally {
      await foundation.close();
    }
  } finally {
    interrupt.stop();
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((done) => {
    if (signal.aborted) done();
    signal.addEventListener("abort", () => done(), { once: true });
  });
}

function tenantOf(text: string): TenantId {
  if (isTenantId(text)) return text;
  throw new UsageError("--tenant takes lower-case letters, digits and inner hyphens, at most 63");
}

/** What stands before the `/` in `claimed_by`. */
function hostOf(text: string): string {
  if (/^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$/.test(text)) return text;
  throw new UsageError("--host takes letters, digits, dots, hyphens and underscores, at most 253");
}
