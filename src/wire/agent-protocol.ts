/**
 * What an agent says, one line of JSON each (docs/reference/agent-protocol.md), and how much of it. Plain types:
 * the same code reads them inside sandboxes, where nothing is installed.
 */
export const agentProtocolLimits = {
  /** Of a line, without its end. */
  lineBytesMax: 65_000,
  linesMax: 10_000,
  /** Of all lines together. */
  bytesMax: 8_388_608,
  depthMax: 16,
  eventDataBytesMax: 16_384,
  replyBytesMax: 49_152,
  reasonCharactersMax: 1000,
} as const;

export interface AgentStart {
  readonly type: "start";
  /** Which version of this protocol it speaks. */
  readonly protocol: 1;
}

export interface AgentEvent {
  readonly type: "event";
  readonly name: string;
  readonly data: Readonly<Record<string, unknown>>;
}

/** What has to happen before the agent can go on. */
export type RequiredAction =
  | { readonly type: "grant_permission"; readonly permission: string; readonly reason: string }
  | { readonly type: "retry_activation"; readonly reason: string };

export interface AgentOutcome {
  readonly type: "outcome";
  /** SHA-256 of the candidate bundle that was promised and uploaded; null keeps the head as it is. */
  readonly candidate: string | null;
  readonly reply: Readonly<Record<string, unknown>> | null;
  readonly required_action: RequiredAction | null;
}

/** Instead of an outcome: the run has failed in a way that no other run would mend. */
export interface AgentFailure {
  readonly type: "failure";
  /** The agent's own word for it. */
  readonly code: string;
  readonly message: string;
}

export type AgentMessage = AgentStart | AgentEvent | AgentOutcome | AgentFailure;
