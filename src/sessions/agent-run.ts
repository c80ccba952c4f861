import { createReadStream } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { type PhaseCallback, PhaseFailure, phaseExit } from "../sandboxes/phase-callback.ts";
import { type Answer, fetchFile, sendFile } from "../sandboxes/phase-transfer.ts";
import { type AgentOutcome, agentProtocolLimits } from "../wire/agent-protocol.ts";
import { runAgentProcess } from "./agent-child.ts";
import { agentLine } from "./agent-message.ts";
import { isUnfinished } from "./agent-protocol.ts";
import { BundleRefusal } from "./bundle.ts";
import { packBundle } from "./bundle-pack.ts";
import { unpackBundle } from "./bundle-unpack.ts";

/** What one run of an agent needs from where it runs. */
export interface AgentRun {
  readonly callback: PhaseCallback;
  /** The agent's own command. */
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Private to the sandbox; the bundle's folder is made in it. */
  readonly directory: string;
  readonly say: (line: string) => Promise<void>;
  readonly complain: (text: string | Uint8Array) => Promise<void>;
  /** Fires when the sandbox is asked to stop: what it says is passed on to the agent. */
  readonly signals: (listener: (signal: NodeJS.Signals) => void) => () => void;
}

/** Beside those of `phaseExit`: it ended well, and had not said what came of it. */
export const agentExit = { unfinished: 7 } as const;

/**
 * One run (docs/reference/agent-protocol.md): the head's bundle becomes a folder, the agent works in it and speaks,
 * the folder becomes the candidate, and the outcome names it. Gives the exit code; throws `PhaseFailure`.
 */
export async function runAgent(run: AgentRun): Promise<number> {
  const place = await mkdtemp(join(run.directory, ".holdfast-agent-"));
  try {
    const folder = join(place, "bundle");
    const input = await run.callback.post("/agent/input", {});
    const head = await hydrate(run.callback, input, place, folder);
    const { bundle: _, ...told } = input;
    const ended = await runAgentProcess({ ...run, folder, input: `${JSON.stringify(told)}\n` });
    if ("fault" in ended) {
      const { code, detail, line } = ended.fault;
      await run.complain(`line ${line} of the agent's output: ${code}: ${detail}\n`);
      if (isUnfinished(code)) return agentExit.unfinished;
      return await sayFailure(run, code, `line ${line}: ${detail}`);
    }
    if ("failure" in ended) {
      await run.complain(`${ended.failure}\n`);
      return phaseExit.failed;
    }
    const candidate =
      ended.outcome.required_action === null ? await upload(run.callback, place, folder, head) : null;
    const outcome: AgentOutcome = { ...ended.outcome, candidate };
    const line = agentLine(outcome);
    if (Buffer.byteLength(line) > agentProtocolLimits.lineBytesMax) {
      return await sayFailure(run, "line_too_long", "the reply is too large for its line");
    }
    await run.say(line);
    return phaseExit.done;
  } catch (error) {
    if (!(error instanceof BundleRefusal)) throw error;
    await run.complain(`bundle_${error.reason}: ${error.message}\n`);
    return await sayFailure(run, `bundle_${error.reason}`, error.message);
  } finally {
    await rm(place, { recursive: true, force: true, maxRetries: 3 });
  }
}

/** The run is over and did what it should: it says that the agent's part of it failed, for good. */
async function sayFailure(run: AgentRun, code: string, message: string): Promise<number> {
  const { reasonCharactersMax } = agentProtocolLimits;
  await run.say(
    agentLine({ type: "failure", code, message: message.slice(0, reasonCharactersMax).toWellFormed() }),
  );
  return phaseExit.done;
}

/** The digest of what is in the head, or of nothing. */
async function hydrate(
  callback: PhaseCallback,
  input: Answer,
  place: string,
  folder: string,
): Promise<string | null> {
  if (input["bundle"] === null) {
    await mkdir(folder);
    return null;
  }
  const file = join(place, "head.tar.zst");
  // Asked again, so that the capability is fresh, and once more should it expire on the way.
  const { bytes, sha256 } = await fetchFile(callback, "/agent/input", bundleIn, file);
  const { tree } = await unpackBundle(createReadStream(file), { bytes: BigInt(bytes), sha256 }, folder);
  await rm(file);
  return tree;
}

function bundleIn(answer: Answer): Answer {
  const { bundle } = answer;
  if (typeof bundle === "object" && bundle !== null) return bundle as Answer; // JSON: an object has names
  throw new PhaseFailure(phaseExit.refused, "/agent/input: the bundle is gone");
}

/** Null: nothing changed, so the head's bundle stays. */
async function upload(
  callback: PhaseCallback,
  place: string,
  folder: string,
  head: string | null,
): Promise<string | null> {
  const file = join(place, "candidate.tar.zst");
  const { content, manifest } = await packBundle(folder, file);
  if (manifest.tree === head || (head === null && manifest.entries === 0)) return null;
  const promise = { bytes: Number(content.bytes), sha256: content.sha256 };
  await sendFile(callback, "/agent/candidates", promise, file, promise);
  return content.sha256;
}
