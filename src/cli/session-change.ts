import type { Client, SessionView } from "../client/client.ts";
import type { ActivationView } from "../wire/activation.ts";
import { HoldfastError } from "../wire/holdfast-error.ts";
import type { DesiredState, SessionPatch } from "../wire/session.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { UsageError } from "./failures.ts";
import { sessionIdOf } from "./job-id.ts";
import { outcomeWords } from "./turn-text.ts";

interface NewFlags extends ServerFlags {
  readonly agentVersion?: number;
  readonly revision?: number;
  readonly label: Readonly<Record<string, string>>;
}

interface SetFlags extends ServerFlags {
  readonly state?: DesiredState;
  readonly agentVersion?: number;
  readonly label: Readonly<Record<string, string>>;
}

export async function start(context: CommandContext, agent: string, flags: NewFlags): Promise<void> {
  const session = await clientOf(context, flags).createSession({
    agent,
    ...(flags.agentVersion === undefined ? {} : { agent_version: flags.agentVersion }),
    ...(Object.keys(flags.label).length === 0 ? {} : { labels: flags.label }),
  });
  await print(context, flags, session, `${session.id}\n`);
}

export async function fork(context: CommandContext, typed: string, flags: NewFlags): Promise<void> {
  const client = clientOf(context, flags);
  const source = await client.getSession(await sessionIdOf(client, typed));
  const revision = flags.revision ?? source.head_revision;
  if (revision === 0) throw new HoldfastError("conflict", "the session has committed nothing yet");
  const session = await client.createSession({
    agent: source.agent,
    agent_version: source.agent_version,
    from: { session_id: source.id, revision },
    ...(Object.keys(flags.label).length === 0 ? {} : { labels: flags.label }),
  });
  await print(context, flags, session, `${session.id}\n`);
}

export async function grant(
  context: CommandContext,
  typed: string,
  permission: string,
  flags: ServerFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const session = await client.grantPermission(await sessionIdOf(client, typed), permission);
  await print(context, flags, session, `${session.id} may now: ${session.permissions.join(", ")}\n`);
}

export async function set(context: CommandContext, typed: string, flags: SetFlags): Promise<void> {
  const patch: SessionPatch = {
    ...(flags.state === undefined ? {} : { desired_state: flags.state }),
    ...(flags.agentVersion === undefined ? {} : { agent_version: flags.agentVersion }),
    ...(Object.keys(flags.label).length === 0 ? {} : { labels: flags.label }),
  };
  if (Object.keys(patch).length === 0) {
    throw new UsageError("nothing to change: give --state, --agent-version or --label");
  }
  const client = clientOf(context, flags);
  const session = await patched(client, await sessionIdOf(client, typed), patch);
  await print(
    context,
    flags,
    session,
    `${session.id} is to be ${session.desired_state}, version ${session.resource_version}\n`,
  );
}

/** The change says all that it means, so that a session which moved on in between is simply read again. */
async function patched(client: Client, id: string, patch: SessionPatch): Promise<SessionView> {
  for (let tries = 1; ; tries += 1) {
    const session = await client.getSession(id);
    try {
      return await client.patchSession(id, patch, { ifMatch: client.etagOf(session) });
    } catch (error) {
      const stale = error instanceof Error && "code" in error && error.code === "precondition_failed";
      if (!stale || tries >= 5) throw error;
    }
  }
}

export async function remove(context: CommandContext, typed: string, flags: ServerFlags): Promise<void> {
  const client = clientOf(context, flags);
  const session = await client.deleteSession(await sessionIdOf(client, typed));
  await print(context, flags, session, `${session.id} is being deleted\n`);
}

export async function retry(
  context: CommandContext,
  typed: string,
  activation: string | undefined,
  flags: ServerFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const session = await sessionIdOf(client, typed);
  const id = activation ?? (await waiting(client, session));
  await printTurn(context, flags, await client.retryActivation(session, id));
}

async function waiting(client: Client, session: string): Promise<string> {
  for await (const { id } of client.listActivations(session, { state: "waiting", limit: 1 })) return id;
  throw new HoldfastError("conflict", "no turn of the session waits for anybody");
}

interface CancelFlags extends ServerFlags {
  readonly reason?: string;
}

export async function cancel(
  context: CommandContext,
  typed: string,
  activation: string | undefined,
  flags: CancelFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const session = await sessionIdOf(client, typed);
  const ids = activation === undefined ? await unfinished(client, session) : [activation];
  if (ids.length === 0) return context.terminal.err("no turn of the session is unfinished\n");
  for (const id of ids) {
    await printTurn(context, flags, await client.cancelActivation(session, id, { reason: flags.reason }));
  }
}

/** The newest first, so that none begins while those before it are cancelled. */
async function unfinished(client: Client, session: string): Promise<string[]> {
  const ids: string[] = [];
  for await (const { id, finished_at } of client.listActivations(session, { order: "desc" })) {
    if (finished_at !== null) break;
    ids.push(id);
  }
  return ids;
}

async function printTurn(
  context: CommandContext,
  { output }: ServerFlags,
  turn: ActivationView,
): Promise<void> {
  if (output === "json") return context.terminal.out(`${JSON.stringify(turn)}\n`);
  const words =
    turn.cancel_requested_at !== null && turn.finished_at === null
      ? "is being cancelled"
      : outcomeWords(turn);
  await context.terminal.out(`${turn.id} ${words}\n`);
}

async function print(
  context: CommandContext,
  { output }: ServerFlags,
  session: SessionView,
  text: string,
): Promise<void> {
  if (output === "json" || output === "yaml") return printValue(context, output, session);
  await context.terminal.out(output === "name" ? `session/${session.id}\n` : text);
}
