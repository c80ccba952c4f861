import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable } from "node:stream";
import { type AgentMessage, type AgentOutcome, agentProtocolLimits } from "../wire/agent-protocol.ts";
import { agentLine } from "./agent-message.ts";
import { type AgentFault, type AgentReading, beginAgent, endAgent, readAgent } from "./agent-protocol.ts";

/** How an agent's process ended: with its outcome, with something else than the protocol, or badly. */
export type AgentEnd =
  | { readonly outcome: AgentOutcome }
  | { readonly fault: AgentFault }
  | { readonly failure: string };

/** Only the wrapper needs these; the agent has no business with the callback. */
const kept = new Set(["HOLDFAST_TOKEN", "HOLDFAST_CALLBACK_URL"]);
/** Of what the agent writes to stderr. Its output shares one bound with the outcome, which must not be lost. */
const stderrBytesMax = 4_194_304;
/** An agent that broke the protocol is asked to end, and killed after this. */
const killAfterMs = 2_000;
/** Something that the agent left running may keep its output open: nobody listens to it for longer. */
const lingerMs = 2_000;

/** Runs the agent's command in its folder, passes on what it says as it says it, and holds back the outcome. */
export async function runAgentProcess(run: {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly folder: string;
  /** One line of JSON for its stdin. */
  readonly input: string;
  readonly say: (line: string) => Promise<void>;
  readonly complain: (text: string | Uint8Array) => Promise<void>;
  readonly signals: (listener: (signal: NodeJS.Signals) => void) => () => void;
}): Promise<AgentEnd> {
  const [program = "", ...words] = run.command;
  const env = Object.fromEntries(Object.entries(run.env).filter(([name]) => !kept.has(name)));
  const child = spawn(program, words, { cwd: run.folder, env, stdio: ["pipe", "pipe", "pipe"] });
  const unlisten = run.signals((signal) => void child.kill(signal));
  const started = once(child, "spawn");
  const ended = once(child, "exit") as Promise<[number | null, NodeJS.Signals | null]>;
  ended.then(
    () => setTimeout(() => [child.stdout, child.stderr].map((pipe) => pipe.destroy()), lingerMs).unref(),
    () => undefined,
  );
  // An agent that doesn't read its input, or ended before: its own end says what it is worth.
  child.stdin.on("error", () => undefined);
  let killing: NodeJS.Timeout | undefined;
  try {
    await started;
    child.stdin.end(run.input);
    const end = () => {
      child.kill("SIGTERM");
      killing ??= setTimeout(() => child.kill("SIGKILL"), killAfterMs);
    };
    const [reading, , [code, signal]] = await Promise.all([
      listen(child.stdout, run.say, end),
      passOn(child.stderr, run.complain),
      ended,
    ]);
    if (reading.fault !== null) return { fault: reading.fault };
    if (code !== 0) return { failure: `the agent ended with ${code === null ? signal : `code ${code}`}` };
    const said = endAgent(reading);
    return "code" in said ? { fault: said } : { outcome: said };
  } catch (error) {
    if (child.pid !== undefined) throw error;
    return {
      failure: `the agent's command can't be started: ${error instanceof Error ? error.message : ""}`,
    };
  } finally {
    clearTimeout(killing);
    unlisten();
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
  }
}

async function listen(
  stdout: Readable,
  say: (line: string) => Promise<void>,
  end: () => void,
): Promise<AgentReading> {
  let reading = beginAgent;
  for await (const chunk of chunks(stdout)) {
    // What comes after a fault is read, so that the agent can end, and forgotten.
    if (reading.fault !== null) continue;
    const step = readAgent(reading, chunk);
    reading = step.reading;
    for (const message of step.messages) {
      const fault = wrappedFault(message, reading);
      if (fault !== null) reading = { ...reading, fault };
      else if (message.type !== "outcome") await say(agentLine(message));
    }
    if (reading.fault !== null) end();
  }
  return reading;
}

/** What is right by the protocol, and not from an agent that has a wrapper. */
function wrappedFault(message: AgentMessage, { lines }: AgentReading): AgentFault | null {
  const fault = (code: AgentFault["code"], detail: string) => ({ code, detail, line: lines });
  if (message.type === "outcome" && message.candidate !== null) {
    return fault("invalid_field", "`candidate` is the wrapper's: it packs the folder");
  }
  const { lineBytesMax } = agentProtocolLimits;
  if (Buffer.byteLength(agentLine(message)) <= lineBytesMax) return null;
  return fault("line_too_long", `a line has at most ${lineBytesMax} bytes`);
}

async function passOn(
  stderr: Readable,
  complain: (text: string | Uint8Array) => Promise<void>,
): Promise<void> {
  let passed = 0;
  for await (const chunk of chunks(stderr)) {
    const room = stderrBytesMax - passed;
    if (room <= 0) continue;
    passed += chunk.length;
    await complain(chunk.subarray(0, room));
    if (chunk.length >= room) await complain("\nholdfast-agent: the rest of stderr is not kept\n");
  }
}

/** All that came until the pipe was closed, by whichever side. */
async function* chunks(pipe: Readable): AsyncGenerator<Buffer> {
  try {
    yield* pipe as AsyncIterable<Buffer>;
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === "ERR_STREAM_PREMATURE_CLOSE"))
      throw error;
  }
}
