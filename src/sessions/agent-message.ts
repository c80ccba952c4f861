import { isHoldfastError } from "../core/errors.ts";
import { readJson } from "../http/json.ts";
import {
  type AgentEvent,
  type AgentFailure,
  type AgentMessage,
  type AgentOutcome,
  agentProtocolLimits as limits,
  type RequiredAction,
} from "../wire/agent-protocol.ts";

export const lineFaults = [
  "not_json",
  "unknown_type",
  "unknown_field",
  "invalid_field",
  "too_large",
] as const;

/** Why a line is none of the protocol. `code` is stable, `detail` is for whoever writes the agent. */
export interface LineFault {
  readonly code: (typeof lineFaults)[number];
  readonly detail: string;
}

class Refused extends Error {
  readonly fault: LineFault;
  constructor(code: LineFault["code"], detail: string) {
    super(detail);
    this.fault = { code, detail };
  }
}

type Fields = Readonly<Record<string, unknown>>;

/** One line, without its end. Total: a message, or what is wrong. */
export function parseAgentLine(line: Uint8Array): AgentMessage | LineFault {
  try {
    return messageOf(objectOf("the line", readJson(line, { depth: limits.depthMax })));
  } catch (error) {
    if (error instanceof Refused) return error.fault;
    if (isHoldfastError(error, "invalid_json"))
      return { code: "not_json", detail: error.detail.replace(/^line 1, /, "") };
    throw error;
  }
}

/** The line of a message, with its end. Control characters travel as escapes: what stores output replaces raw ones. */
export function agentLine(message: AgentMessage): string {
  const escape = (character: string) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return `${JSON.stringify(message).replaceAll(/[\u007f-\u009f]/g, escape)}\n`;
}

function messageOf(fields: Fields): AgentMessage {
  switch (fields["type"]) {
    case "start":
      only(fields, ["type", "protocol"]);
      if (fields["protocol"] !== 1) throw invalid("protocol", "1, the only version there is");
      return { type: "start", protocol: 1 };
    case "event":
      return eventOf(fields);
    case "outcome":
      return outcomeOf(fields);
    case "failure":
      return failureOf(fields);
    default:
      throw new Refused("unknown_type", "`type` is start, event, outcome or failure");
  }
}

function eventOf(fields: Fields): AgentEvent {
  only(fields, ["type", "name", "data"]);
  const name = textOf("name", fields["name"], /^[a-z][a-z0-9_.-]{0,62}$/, "a word like notes.added");
  const data = fields["data"] === undefined ? {} : objectOf("data", fields["data"]);
  bounded("data", data, limits.eventDataBytesMax);
  return { type: "event", name, data };
}

function outcomeOf(fields: Fields): AgentOutcome {
  only(fields, ["type", "candidate", "reply", "required_action"]);
  const { candidate = null, reply = null, required_action = null } = fields;
  const outcome: AgentOutcome = {
    type: "outcome",
    candidate:
      candidate === null
        ? null
        : textOf("candidate", candidate, /^[0-9a-f]{64}$/, "a SHA-256 in hex, or null"),
    reply: reply === null ? null : objectOf("reply", reply),
    required_action: required_action === null ? null : actionOf(objectOf("required_action", required_action)),
  };
  bounded("reply", outcome.reply, limits.replyBytesMax);
  return outcome;
}

function failureOf(fields: Fields): AgentFailure {
  only(fields, ["type", "code", "message"]);
  const code = textOf("code", fields["code"], /^[a-z][a-z0-9_]{0,62}$/, "a word like mailbox_gone");
  return { type: "failure", code, message: whyOf("message", fields["message"]) };
}

/** For a person. */
function whyOf(name: string, value: unknown): string {
  const text = textOf(name, value, /^[\s\S]+$/, "text that says why");
  if (text.length <= limits.reasonCharactersMax) return text;
  throw new Refused("too_large", `\`${name}\` has more than ${limits.reasonCharactersMax} characters`);
}

function actionOf(fields: Fields): RequiredAction {
  const reason = () => whyOf("required_action.reason", fields["reason"]);
  switch (fields["type"]) {
    case "grant_permission": {
      only(fields, ["type", "permission", "reason"]);
      const shape = /^[a-z][a-z0-9_.:-]{0,62}$/;
      const permission = textOf(
        "required_action.permission",
        fields["permission"],
        shape,
        "a word like notes.write",
      );
      return { type: "grant_permission", permission, reason: reason() };
    }
    case "retry_activation":
      only(fields, ["type", "reason"]);
      return { type: "retry_activation", reason: reason() };
    default:
      throw new Refused("unknown_type", "`required_action.type` is grant_permission or retry_activation");
  }
}

function only(fields: Fields, known: readonly string[]): void {
  const unknown = Object.keys(fields).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const named = JSON.stringify(unknown.slice(0, 64));
  throw new Refused("unknown_field", `the field ${named} is not known; there are ${known.join(", ")}`);
}

function objectOf(name: string, value: unknown): Fields {
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Fields; // just looked
  throw invalid(name, "a JSON object");
}

function textOf(name: string, value: unknown, shape: RegExp, words: string): string {
  if (typeof value === "string" && shape.test(value)) return value;
  throw invalid(name, words);
}

function bounded(name: string, value: unknown, bytesMax: number): void {
  if (Buffer.byteLength(JSON.stringify(value)) <= bytesMax) return;
  throw new Refused("too_large", `\`${name}\` takes more than ${bytesMax} bytes`);
}

function invalid(name: string, words: string): Refused {
  return new Refused("invalid_field", `\`${name}\` has to be ${words}`);
}
