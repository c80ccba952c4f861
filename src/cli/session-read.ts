import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { Client } from "../client/client.ts";
import type { ActivationView } from "../wire/activation.ts";
import { HoldfastError } from "../wire/holdfast-error.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { alreadyThere, writeVerified } from "./download.ts";
import { sessionIdOf } from "./job-id.ts";
import { eventText, turnChange, turnText } from "./turn-text.ts";
import { visible } from "./visible.ts";
import { changeText } from "./watch-changes.ts";

export async function history(
  context: CommandContext,
  typed: string,
  flags: ServerFlags & { readonly last?: number },
): Promise<void> {
  const client = clientOf(context, flags);
  const turns = await turnsOf(client, await sessionIdOf(client, typed), flags.last);
  if (flags.output === "json" || flags.output === "yaml") {
    return printValue(context, flags.output, { items: turns });
  }
  if (turns.length === 0) return context.terminal.err("nothing was said yet\n");
  const { terminal } = context;
  await terminal.out(turns.map((turn) => turnText(turn, terminal.colors)).join(""));
}

async function turnsOf(client: Client, session: string, last: number | undefined): Promise<ActivationView[]> {
  const turns: ActivationView[] = [];
  const order = last === undefined ? "asc" : "desc";
  for await (const turn of client.listActivations(session, { order, limit: Math.min(last ?? 200, 200) })) {
    turns.push(turn);
    if (turns.length === last) break;
  }
  return last === undefined ? turns : turns.toReversed();
}

export async function watch(
  context: CommandContext,
  typed: string,
  flags: ServerFlags & { readonly after?: string },
): Promise<void> {
  const { terminal } = context;
  const client = clientOf(context, flags);
  const session = await sessionIdOf(client, typed);
  for await (const change of client.watch({ session, after: flags.after })) {
    if (flags.output === "json") {
      await terminal.out(`${JSON.stringify(change)}\n`);
      continue;
    }
    const event = turnChange(change)?.event ?? null;
    const time = change.at.slice(11, 23);
    await terminal.out(
      event === null ? changeText(change) : `${time}  ${eventText(event, terminal.colors)}\n`,
    );
  }
}

export async function download(
  context: CommandContext,
  typed: string,
  flags: ServerFlags & { readonly revision?: number; readonly outputFile: string; readonly force?: boolean },
): Promise<void> {
  const client = clientOf(context, flags);
  const id = await sessionIdOf(client, typed);
  const number = flags.revision ?? (await client.getSession(id)).head_revision;
  if (number === 0) throw new HoldfastError("conflict", "the session has committed nothing yet");
  const path = resolve(context.directory, flags.outputFile);
  const force = flags.force === true;
  if (!force && existsSync(path)) throw alreadyThere(path);
  const { revision, body } = await client.downloadBundle(id, number);
  const { bundle } = revision;
  if (bundle === null) throw new HoldfastError("not_found", "the revision has no bundle");
  await writeVerified(path, bundle, body, force);
  if (flags.output === "json") return context.terminal.out(`${JSON.stringify({ path, revision })}\n`);
  const { bytes, sha256 } = bundle;
  await context.terminal.out(`${visible(path)}  revision ${number} ${bytes} bytes sha256:${sha256}\n`);
}
