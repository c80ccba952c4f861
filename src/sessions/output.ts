import type { AgentEvent } from "../wire/agent-protocol.ts";
import type { Failure } from "./activation.ts";
import { type AgentReading, endAgent, readAgent } from "./agent-protocol.ts";

/** A chunk of what a sandbox wrote, as it is stored. */
export interface OutputChunk {
  readonly seq: bigint;
  readonly stream: string;
  readonly body: string;
}

/** What more was understood. */
export interface Understood {
  readonly reading: AgentReading;
  readonly events: readonly AgentEvent[];
  /** The last chunk that was read. */
  readonly read: bigint;
}

/** Pure: the same chunks, taken in any portions, give the same events and the same end. Only stdout is the protocol. */
export function understand(before: AgentReading, read: bigint, chunks: readonly OutputChunk[]): Understood {
  let reading = before;
  const events: AgentEvent[] = [];
  for (const chunk of chunks) {
    if (chunk.stream !== "stdout") continue;
    const next = readAgent(reading, Buffer.from(chunk.body));
    reading = next.reading;
    events.push(...next.messages.filter((message) => message.type === "event"));
  }
  return { reading, events, read: chunks.at(-1)?.seq ?? read };
}

/** Why what was said is no outcome, once nothing more comes; null when there is one. */
export function outputFault(reading: AgentReading): Failure | null {
  const end = endAgent(reading);
  if ("type" in end) return null;
  return { code: end.code, message: `Line ${end.line} of the agent's output: ${end.detail}.`.slice(0, 1000) };
}
