import { parseArgs } from "node:util";
import { parseDuration, toMilliseconds } from "../core/time.ts";
import { PhaseFailure, phaseCallback, phaseExit } from "../sandboxes/phase-callback.ts";
import { type AgentRun, runAgent } from "./agent-run.ts";

export const agentUsage = `holdfast-agent: the sandbox's side of an agent's run.

  holdfast-agent run [--retry-for DURATION] -- COMMAND …

The head's bundle becomes a folder, in which COMMAND is run. On its stdin it gets one line of JSON: the stimulus,
the permissions that were granted, and where it is. On its stdout it says start, events and its outcome, one line
of JSON each. The folder then becomes the session's next revision.

Options
  --retry-for DURATION  bear temporary failures of the callback for so long (default 10m)
  --help

Example
  holdfast-agent run -- node notes.mjs

Exit codes
  0 done: it said the outcome, or a failure that no other run would mend
  1 the agent failed   2 usage   3 the server refused the request
  4 stop: this sandbox may not go on   5 gave up   6 the bytes are not the promised ones
  7 the agent ended without an outcome
`;

export interface AgentCommandContext extends Omit<AgentRun, "callback" | "command"> {
  readonly wait?: (ms: number) => Promise<void>;
}

/** Runs one command and gives the process's exit code. Never throws. */
export async function agentCommand(argv: readonly string[], context: AgentCommandContext): Promise<number> {
  try {
    return await run(argv, context);
  } catch (error) {
    await context.complain(`holdfast-agent: ${error instanceof Error ? error.message : String(error)}\n`);
    return error instanceof PhaseFailure ? error.exit : phaseExit.failed;
  }
}

async function run(argv: readonly string[], context: AgentCommandContext): Promise<number> {
  const at = argv.indexOf("--");
  const { values, positionals } = parse(at === -1 ? argv : argv.slice(0, at));
  if (values.help === true) {
    await context.complain(agentUsage);
    return phaseExit.done;
  }
  const [name, ...more] = positionals;
  const command = at === -1 ? [] : argv.slice(at + 1);
  if (name !== "run" || more.length > 0 || command.length === 0)
    throw usage("write: holdfast-agent run -- COMMAND …");
  const url = context.env["HOLDFAST_CALLBACK_URL"];
  const token = context.env["HOLDFAST_TOKEN"];
  if (url === undefined || token === undefined) {
    throw usage("HOLDFAST_CALLBACK_URL and HOLDFAST_TOKEN are not set: this is not a sandbox");
  }
  const retryFor = parseDuration(values["retry-for"] ?? "10m");
  if (retryFor === undefined) throw usage("--retry-for is a duration like 90s or 10m");
  const { wait = sleep } = context;
  const callback = phaseCallback({
    url,
    token,
    retryForMs: toMilliseconds(retryFor),
    wait,
    monotonicMs: () => performance.now(),
  });
  return runAgent({ ...context, callback, command });
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowPositionals: true,
      options: { help: { type: "boolean", short: "h" }, "retry-for": { type: "string" } },
    });
  } catch (error) {
    throw usage(error instanceof Error ? error.message : String(error));
  }
}

function usage(message: string): PhaseFailure {
  return new PhaseFailure(phaseExit.usage, message);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
