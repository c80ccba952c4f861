import type { ActivationView } from "../wire/activation.ts";
import type { ChangeEvent } from "../wire/job.ts";
import { blockedWords, failureWords } from "./job-words.ts";
import type { Colors } from "./terminal.ts";
import { visible } from "./visible.ts";

type Said = Readonly<Record<string, unknown>>;

/** Text where that is all there is, else JSON. Lines of it stay lines. */
export function saidText(said: Said | null): string {
  if (said === null) return "";
  const { text, ...rest } = said;
  if (typeof text === "string" && Object.keys(rest).length === 0) {
    return text.split("\n").map(visible).join("\n");
  }
  return visible(JSON.stringify(said));
}

/** A change of an activation: which one, and what it says. */
export interface TurnChange {
  readonly activation: string | undefined;
  /** What its agent said meanwhile. */
  readonly event: { readonly name: string; readonly data: unknown } | null;
  /** It has come to something: its end, or somebody is needed. */
  readonly settled: boolean;
}

const settling = new Set([
  "activation.committed",
  "activation.failed",
  "activation.cancelled",
  "activation.waiting",
]);

export function turnChange({ kind, operation, body }: ChangeEvent): TurnChange | null {
  if (kind !== "activation" || typeof body !== "object" || body === null) return null;
  const facts = body as Readonly<Record<string, unknown>>; // just looked
  const activation = facts["activation_id"] ?? facts["id"];
  const { name, data } = facts;
  return {
    activation: typeof activation === "string" ? activation : undefined,
    event: operation === "activation.event" && typeof name === "string" ? { name, data } : null,
    settled: settling.has(operation),
  };
}

export function eventText(event: { readonly name: string; readonly data: unknown }, colors: Colors): string {
  const data = JSON.stringify(event.data ?? {});
  return colors.dim(`· ${visible(event.name)}${data === "{}" ? "" : ` ${visible(data)}`}`);
}

/** What came of it, as a sentence. */
export function outcomeWords(turn: ActivationView): string {
  switch (turn.state) {
    case "committed":
      return `committed as revision ${turn.revision ?? 0}`;
    case "failed":
      return turn.failure === null ? "failed" : `failed: ${failureWords(turn.failure)}`;
    case "cancelled":
      return `was cancelled${turn.cancel_reason === null ? "" : `: ${visible(turn.cancel_reason)}`}`;
    case "waiting":
      return `waits: ${needWords(turn)}`;
    case "queued":
    case "running":
    case "committing":
      return turn.last_failure === null
        ? `${turn.state}${blockedWords(turn)}`
        : `${turn.state} after ${failureWords(turn.last_failure)}${blockedWords(turn)}`;
  }
}

function needWords({ required_action: action }: ActivationView): string {
  if (action === null) return "for somebody";
  const reason = visible(action.reason);
  return action.type === "grant_permission"
    ? `it needs ${action.permission}: ${reason}`
    : `to be retried: ${reason}`;
}

/** One turn of a transcript. */
export function turnText(turn: ActivationView, colors: Colors): string {
  const indented = (mark: string, text: string) =>
    text === ""
      ? ""
      : `${text
          .split("\n")
          .map((line, index) => `  ${index === 0 ? mark : " "} ${line}`)
          .join("\n")}\n`;
  const head = `${turn.ordinal}  ${turn.admitted_at.slice(0, 19).replace("T", " ")}  ${outcomeWords(turn)}\n`;
  return colors.dim(head) + indented(">", saidText(turn.stimulus)) + indented("<", saidText(turn.reply));
}
