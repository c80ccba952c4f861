import type { AgentView, Client, SessionView } from "../client/client.ts";
import type { ActivationView } from "../wire/activation.ts";
import type { RevisionView } from "../wire/session.ts";
import { agentNamed } from "./agent.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { sessionIdOf } from "./job-id.ts";
import { labelText } from "./listing.ts";
import { spelled } from "./program-name.ts";
import type { Colors } from "./terminal.ts";
import { age, instantText } from "./time-text.ts";
import { outcomeWords } from "./turn-text.ts";
import { visible } from "./visible.ts";

const shownMax = 10;

interface SessionPicture {
  readonly session: SessionView;
  /** Newest first. */
  readonly activations: readonly ActivationView[];
  readonly revisions: readonly RevisionView[];
}

/** `holdfast describe session ID`: how it stands and why, in the words of a person. */
export async function describeSession(
  context: CommandContext,
  typed: string,
  flags: ServerFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const picture = await pictureOf(client, await sessionIdOf(client, typed));
  if (flags.output === "json" || flags.output === "yaml") return printValue(context, flags.output, picture);
  const lines = sessionLines(picture, context.terminal.colors, context.now());
  await context.terminal.out(`${lines.join("\n")}\n`);
}

async function pictureOf(client: Client, id: string): Promise<SessionPicture> {
  const [session, activations, revisions] = await Promise.all([
    client.getSession(id),
    client.listActivations(id, { order: "desc", limit: shownMax }).page(),
    client.listRevisions(id, { limit: shownMax }).page(),
  ]);
  return { session, activations: activations.items, revisions: revisions.items };
}

const field = (name: string, text: string): string => `${name.padEnd(12)} ${text}`;

function sessionLines(
  { session, activations, revisions }: SessionPicture,
  colors: Colors,
  now: number,
): string[] {
  const labels = labelText(session.labels);
  const lines = [
    field("Session", session.id),
    field(
      "Agent",
      `${colors.bold(visible(session.agent))}, version ${session.agent_version} of its template`,
    ),
    field("State", stateSentence(session, activations[0])),
    field("Wanted", wantedSentence(session)),
    field(
      "Permissions",
      session.permissions.length === 0 ? "none" : session.permissions.map(visible).join(", "),
    ),
    field("Labels", labels === "" ? "none" : visible(labels)),
    field("Begun", `${instantText(session.created_at)} (${age(session.created_at, now)} ago)`),
  ];
  if (session.blocked !== undefined)
    lines.push(field("Blocked", colors.yellow(visible(session.blocked.message))));
  if (session.deleted_at !== null) lines.push(field("Deleted", instantText(session.deleted_at)));
  lines.push("", "Turns, newest first");
  if (activations.length === 0)
    lines.push(spelled("  none yet: `holdfast session send ID WORDS` is the first"));
  for (const turn of activations) {
    lines.push(`  ${String(turn.ordinal).padEnd(5)} ${instantText(turn.admitted_at)}  ${outcomeWords(turn)}`);
  }
  lines.push("", "Revisions, newest first");
  if (revisions.length === 0) lines.push("  none yet: it remembers nothing");
  for (const revision of revisions) lines.push(`  ${revisionWords(revision)}`);
  return lines;
}

/** A state alone says what; this says what has to happen for it to change. */
function stateSentence({ state, head_revision }: SessionView, newest: ActivationView | undefined): string {
  const kept = head_revision === 0 ? "nothing committed yet" : `revision ${head_revision} is committed`;
  switch (state) {
    case "pending":
      return "pending: no controller has seen it yet";
    case "idle":
      return `idle: nothing is asked of it and nothing is held for it; ${kept}`;
    case "running":
      return `running: a turn is at work; ${kept}`;
    case "waiting":
      return newest === undefined
        ? "waiting for somebody"
        : `waiting: turn ${newest.ordinal} ${outcomeWords(newest)}`;
    case "suspended":
      return spelled("suspended: turns wait until `holdfast session set ID --state active`");
    case "closed":
      return "closed: it takes no more turns";
    case "deleted":
      return "deleted: its bundles are gone, what was asked and answered stays on record";
  }
}

function wantedSentence({ desired_state, generation, observed_generation }: SessionView): string {
  const behind = BigInt(generation) - BigInt(observed_generation);
  if (behind <= 0n) return `${desired_state}, as observed`;
  return `${desired_state}; ${behind} ${behind === 1n ? "change was" : "changes were"} not observed yet`;
}

function revisionWords({ revision, bundle, from, committed_at, removed_at }: RevisionView): string {
  const kept = bundle === null ? "no bundle" : `${bundle.bytes} bytes sha256:${bundle.sha256}`;
  const origin = from === null ? "" : `, a copy of ${from.session_id} at revision ${from.revision}`;
  const gone = removed_at === null ? "" : `, removed at ${instantText(removed_at)}`;
  return `${String(revision).padEnd(5)} ${instantText(committed_at)}  ${kept}${origin}${gone}`;
}

/** `holdfast describe agent NAME`. */
export async function describeAgent(
  context: CommandContext,
  name: string,
  flags: ServerFlags,
): Promise<void> {
  const agent = await agentNamed(clientOf(context, flags), name);
  if (flags.output === "json" || flags.output === "yaml") return printValue(context, flags.output, agent);
  const lines = agentLines(agent, context.terminal.colors, context.now());
  await context.terminal.out(`${lines.join("\n")}\n`);
}

function agentLines(
  { id, name, version, labels, spec, created_at }: AgentView,
  colors: Colors,
  now: number,
): string[] {
  const text = labelText(labels);
  const { command, runtime, image, tries, timeout, destinations = [] } = spec;
  return [
    field("Agent", colors.bold(visible(name))),
    field("ID", id),
    field("Version", `${version} of its template; sessions keep the one that they began with`),
    field("Command", visible(command.join(" "))),
    field("Runtime", runtime === undefined ? "the installation's default" : visible(runtime)),
    ...(image === undefined ? [] : [field("Image", visible(image))]),
    field("A turn", `${tries ?? "the default number of"} tries, ${timeout ?? "the default time"} for each`),
    field(
      "Replies to",
      destinations.length === 0
        ? "the built-in inbox"
        : destinations.map((one) => `${visible(one.name)} (${visible(one.url)})`).join(", "),
    ),
    field("Labels", text === "" ? "none" : visible(text)),
    field("Made", `${instantText(created_at)} (${age(created_at, now)} ago)`),
  ];
}
