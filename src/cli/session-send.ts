import { randomUUID } from "node:crypto";
import type { Client } from "../client/client.ts";
import type { ActivationView, Stimulus } from "../wire/activation.ts";
import { type ExitCode, exitCodes } from "../wire/exit-codes.ts";
import { type CommandContext, clientOf, type ServerFlags } from "./context.ts";
import { Exit, UsageError } from "./failures.ts";
import { Interrupted, onInterrupt } from "./interrupt.ts";
import { sessionIdOf } from "./job-id.ts";
import { readText } from "./job-source.ts";
import { programName } from "./program-name.ts";
import { strictJson } from "./strict-json.ts";
import { eventText, outcomeWords, saidText, turnChange } from "./turn-text.ts";
import { visible } from "./visible.ts";
import { watchChanges } from "./watch-changes.ts";

export interface SendFlags extends ServerFlags {
  readonly json?: string;
  readonly id?: string;
  readonly detach?: boolean;
  readonly grant?: readonly string[];
}

/** `holdfast session send SESSION WORDS…`: one turn, followed to its end. */
export async function send(
  context: CommandContext,
  typed: string,
  words: readonly string[],
  flags: SendFlags,
): Promise<void> {
  const stimulus = await stimulusOf(words, flags);
  const client = clientOf(context, flags);
  const session = await sessionIdOf(client, typed);
  const interrupt = onInterrupt();
  const { signal } = interrupt;
  const id = flags.id ?? randomUUID();
  let admitted = false;
  try {
    for (const permission of flags.grant ?? []) await client.grantPermission(session, permission, { signal });
    // Read before it is admitted, so that watching from it misses nothing.
    const { cursor } = await client.listActivations(session, { limit: 1, signal }).page();
    const turn = await client.admitActivation(session, { id, stimulus }, { signal });
    admitted = true;
    if (flags.detach === true) {
      await context.terminal.out(
        flags.output === "json" ? `${JSON.stringify(turn, null, 2)}\n` : `${turn.id}\n`,
      );
      return;
    }
    throw new Exit(await follow(context, client, flags, { turn, cursor, signal }));
  } catch (error) {
    const way = `  follow:  ${programName} session watch ${session}\n  cancel:  ${programName} session cancel ${session} ${id}\n`;
    if (error instanceof Interrupted) {
      await context.terminal.err(`Detached: the turn goes on.\n${way}`);
      throw new Exit(exitCodes.interrupted);
    }
    // Sending it again under another id would be another turn.
    if (admitted && !(error instanceof Exit)) {
      await context.terminal.err(`The turn was admitted, and goes on without us.\n${way}`);
    }
    throw error;
  } finally {
    interrupt.stop();
  }
}

async function stimulusOf(words: readonly string[], flags: SendFlags): Promise<Stimulus> {
  if (flags.json !== undefined) {
    if (words.length > 0) throw new UsageError("give either words or --json");
    return objectOf(flags.json);
  }
  if (words.length === 0)
    throw new UsageError("say something, or give --json", "`-` reads it from standard input.");
  const [only] = words;
  if (words.length > 1 || only !== "-") return { text: words.join(" ") };
  const text = (await readText("-")).trimEnd();
  if (text === "") throw new UsageError("standard input says nothing");
  return { text };
}

function objectOf(text: string): Stimulus {
  const value = strictJson(text, "--json");
  if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Stimulus; // just looked
  throw new UsageError("--json takes a JSON object");
}

async function follow(
  context: CommandContext,
  client: Client,
  flags: SendFlags,
  at: { readonly turn: ActivationView; readonly cursor: string; readonly signal: AbortSignal },
): Promise<ExitCode> {
  const { terminal } = context;
  const { signal, cursor: after } = at;
  const { session_id: session, id } = at.turn;
  const json = flags.output === "json";
  const line = (value: object) => terminal.out(`${JSON.stringify(value)}\n`);

  if (json) await line({ type: "activation", activation: at.turn });
  // What was sent again may be over already, before all that is watched here.
  if (at.turn.finished_at !== null) return finish(context, json, at.turn);
  if (!json) await tellWhoWaits(context, client, at.turn);
  for await (const change of watchChanges(client, { after, session, signal })) {
    const said = turnChange(change);
    if (said?.activation !== id) continue;
    if (said.event !== null) {
      if (json) await line({ type: "event", ...said.event });
      else await terminal.out(`${eventText(said.event, terminal.colors)}\n`);
    }
    if (!said.settled) continue;
    const turn = await client.getActivation(session, id, { signal });
    // It may have gone on since: then another change says so.
    if (turn.finished_at !== null || turn.state === "waiting") return finish(context, json, turn);
  }
  throw new Error("the watch has ended");
}

/** A session's turns run one at a time: one before this that needs somebody holds it up, or no controller is there. */
async function tellWhoWaits(
  { terminal }: CommandContext,
  client: Client,
  turn: ActivationView,
): Promise<void> {
  const { blocked } = await client.getActivation(turn.session_id, turn.id);
  if (blocked !== undefined) await terminal.err(`${visible(blocked.message)}\n`);
  if (turn.state !== "queued" || turn.ordinal === 1) return;
  for await (const before of client.listActivations(turn.session_id, { state: "waiting", limit: 1 })) {
    await terminal.err(`Turn ${before.ordinal} is before it and ${outcomeWords(before)}\n${nextOf(before)}`);
    return;
  }
}

async function finish({ terminal }: CommandContext, json: boolean, turn: ActivationView): Promise<ExitCode> {
  if (json) await terminal.out(`${JSON.stringify({ type: "result", activation: turn })}\n`);
  else {
    const reply = saidText(turn.reply);
    if (reply !== "") await terminal.out(`${reply}\n`);
    if (turn.state !== "committed") await terminal.err(`The turn ${outcomeWords(turn)}\n${nextOf(turn)}`);
  }
  switch (turn.state) {
    case "committed":
      return exitCodes.ok;
    case "cancelled":
      return exitCodes.job_cancelled;
    case "waiting":
      return exitCodes.action_required;
    case "failed":
    case "queued":
    case "running":
    case "committing":
      return exitCodes.job_failed;
  }
}

function nextOf({ required_action: need, session_id: session, id }: ActivationView): string {
  switch (need?.type) {
    case "grant_permission":
      return `  grant it:  ${programName} session grant ${session} ${need.permission}\n`;
    case "retry_activation":
      return `  retry it:  ${programName} session retry ${session} ${id}\n`;
    case undefined:
      return "";
  }
}
