import {
  type AgentMessage,
  type AgentOutcome,
  agentProtocolLimits as limits,
} from "../wire/agent-protocol.ts";
import { type LineFault, lineFaults, parseAgentLine } from "./agent-message.ts";

export const agentFaults = [
  ...lineFaults,
  "line_too_long",
  "too_many_lines",
  "too_much_output",
  "no_start",
  "second_start",
  "after_outcome",
  "unfinished_line",
  "no_outcome",
] as const;

/** Those of an agent that was stopped short, which may say all of it in another run. */
const unfinished: ReadonlySet<string> = new Set(["no_start", "no_outcome", "unfinished_line"]);

export function isUnfinished(code: string): boolean {
  return unfinished.has(code);
}

/** Why what an agent said is no outcome. */
export interface AgentFault {
  /** One of `agentFaults`, which are stable and documented, or the agent's own word for its failure. */
  readonly code: (typeof agentFaults)[number] | (string & {});
  readonly detail: string;
  /** Of the line, from 1. */
  readonly line: number;
}

/**
 * How far the reading of an agent's stdout is: `begun → started → ended`, or a fault, which nothing ends. Plain
 * data: the same bytes, cut in any other way, give the same messages and the same end.
 */
export interface AgentReading {
  readonly stage: "begun" | "started" | "ended";
  /** Lines that are complete, and all bytes so far. */
  readonly lines: number;
  readonly bytes: number;
  /** The beginning of a line whose end has not come. */
  readonly rest: Buffer;
  readonly outcome: AgentOutcome | null;
  readonly fault: AgentFault | null;
}

export const beginAgent: AgentReading = {
  stage: "begun",
  lines: 0,
  bytes: 0,
  rest: Buffer.alloc(0),
  outcome: null,
  fault: null,
};

const lineFeed = 0x0a;

/** Take the next bytes of stdout. Total: it never throws, whatever they are; after a fault it reads nothing more. */
export function readAgent(
  before: AgentReading,
  chunk: Uint8Array,
): { readonly reading: AgentReading; readonly messages: readonly AgentMessage[] } {
  const messages: AgentMessage[] = [];
  let reading = before;
  let from = 0;
  while (reading.fault === null && from < chunk.length) {
    const end = chunk.indexOf(lineFeed, from);
    const piece = chunk.subarray(from, end === -1 ? chunk.length : end);
    from = end === -1 ? chunk.length : end + 1;
    reading = takePiece(reading, piece, end !== -1);
    if (reading.fault !== null || end === -1) continue;
    const line = parseAgentLine(reading.rest);
    reading = takeLine({ ...reading, rest: beginAgent.rest }, line);
    if (reading.fault === null && "type" in line) messages.push(line);
  }
  return { reading, messages };
}

/** Nothing more comes. The outcome stands only now: until then a line could follow it that spoils all. */
export function endAgent({ stage, fault, rest, outcome, lines }: AgentReading): AgentOutcome | AgentFault {
  if (fault !== null) return fault;
  if (rest.length > 0)
    return { code: "unfinished_line", detail: "the last line has no end", line: lines + 1 };
  if (outcome !== null) return outcome;
  const detail = stage === "begun" ? "it said nothing" : "it ended without an outcome";
  return { code: stage === "begun" ? "no_start" : "no_outcome", detail, line: lines };
}

function takePiece(reading: AgentReading, piece: Uint8Array, complete: boolean): AgentReading {
  const fail = (code: AgentFault["code"], detail: string): AgentReading => ({
    ...reading,
    rest: beginAgent.rest,
    fault: { code, detail, line: reading.lines + 1 },
  });
  if (reading.lines === limits.linesMax) {
    return fail("too_many_lines", `there are at most ${limits.linesMax} lines`);
  }
  // Which of the two bounds is passed first must not depend on how the bytes were cut.
  const lineRoom = limits.lineBytesMax - reading.rest.length;
  const room = limits.bytesMax - reading.bytes;
  if (piece.length > lineRoom && lineRoom <= room) {
    return fail("line_too_long", `a line has at most ${limits.lineBytesMax} bytes`);
  }
  const taken = piece.length + (complete ? 1 : 0);
  if (taken > room) return fail("too_much_output", `all lines have at most ${limits.bytesMax} bytes`);
  return {
    ...reading,
    bytes: reading.bytes + taken,
    lines: reading.lines + (complete ? 1 : 0),
    rest: Buffer.concat([reading.rest, piece]),
  };
}

function takeLine(reading: AgentReading, line: AgentMessage | LineFault): AgentReading {
  const fail = (code: AgentFault["code"], detail: string): AgentReading => ({
    ...reading,
    fault: { code, detail, line: reading.lines },
  });
  // Also for a line that is nothing: what comes after the outcome is too late, whatever it is.
  if (reading.stage === "ended") return fail("after_outcome", "nothing may follow the outcome");
  if (!("type" in line)) return fail(line.code, line.detail);
  if (line.type === "failure") return fail(line.code, line.message);
  if (reading.stage === "begun") {
    return line.type === "start"
      ? { ...reading, stage: "started" }
      : fail("no_start", "the first line has to be `start`");
  }
  switch (line.type) {
    case "start":
      return fail("second_start", "there is one `start`");
    case "event":
      return reading;
    case "outcome":
      return { ...reading, stage: "ended", outcome: line };
    default:
      return line satisfies never;
  }
}
