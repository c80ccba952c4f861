import type { AgentView, Client, SessionView } from "../client/client.ts";
import type { JobState, JobView } from "../wire/job.ts";
import type { SessionState } from "../wire/session.ts";
import { agentNamed } from "./agent.ts";
import { type CommandContext, clientOf } from "./context.ts";
import { jobIdOf, sessionIdOf } from "./job-id.ts";
import { stateColor } from "./job-words.ts";
import { getList, type ListFlags, labelText, type Shown, watchList } from "./listing.ts";
import { spelled } from "./program-name.ts";
import { age } from "./time-text.ts";

interface LabelledFlags extends ListFlags {
  readonly label: Readonly<Record<string, string>>;
  readonly watch?: boolean;
}

interface JobFlags extends LabelledFlags {
  readonly state?: JobState;
  readonly name?: string;
}

interface SessionFlags extends LabelledFlags {
  readonly agent?: string;
  readonly state?: SessionState;
}

interface Watched<T> {
  readonly client: Client;
  readonly flags: LabelledFlags;
  readonly typed: readonly string[];
  readonly shown: Shown<T>;
  /** Where the list stands before it is read, so that watching from there misses nothing. */
  readonly cursor: () => Promise<{ readonly cursor: string }>;
  readonly list: (pageSize: number) => AsyncIterable<T>;
  readonly named: (typed: string) => Promise<T>;
  readonly get: (id: string) => Promise<T>;
  readonly fits: (item: T) => boolean;
}

/** `holdfast get jobs [ID…]`: newest first. */
export function getJobs(context: CommandContext, typed: readonly string[], flags: JobFlags): Promise<void> {
  const client = clientOf(context, flags);
  const { state, name, label: labels } = flags;
  const asked = state !== undefined || name !== undefined || Object.keys(labels).length > 0;
  return listAndWatch(context, {
    client,
    flags,
    typed,
    shown: { ...shownJobs, none: asked ? "no job fits" : shownJobs.none },
    cursor: () => client.listJobs({ limit: 1 }).page(),
    list: (limit) => client.listJobs({ state, name, labels, limit }),
    named: async (text) => client.getJob(await jobIdOf(client, text)),
    get: (id) => client.getJob(id),
    fits: (job) =>
      (state === undefined || job.state === state) &&
      (name === undefined || job.name === name) &&
      hasLabels(job, labels),
  });
}

/** `holdfast get sessions [ID…]`: newest first. */
export function getSessions(
  context: CommandContext,
  typed: readonly string[],
  flags: SessionFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const { agent, state, label: labels } = flags;
  const asked = agent !== undefined || state !== undefined || Object.keys(labels).length > 0;
  return listAndWatch(context, {
    client,
    flags,
    typed,
    shown: { ...shownSessions, none: asked ? "no session fits" : shownSessions.none },
    cursor: () => client.listSessions({ limit: 1 }).page(),
    list: (limit) => client.listSessions({ agent, state, labels, limit }),
    named: async (text) => client.getSession(await sessionIdOf(client, text)),
    get: (id) => client.getSession(id),
    fits: (session) =>
      (agent === undefined || session.agent === agent) &&
      (state === undefined || session.state === state) &&
      hasLabels(session, labels),
  });
}

/** `holdfast get agents [NAME…]`: newest first. */
export function getAgents(
  context: CommandContext,
  typed: readonly string[],
  flags: LabelledFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const { label: labels } = flags;
  return listAndWatch(context, {
    client,
    flags,
    typed,
    shown: { ...shownAgents, none: Object.keys(labels).length > 0 ? "no agent fits" : shownAgents.none },
    cursor: () => client.listAgents({ limit: 1 }).page(),
    list: (limit) => client.listAgents({ labels, limit }),
    named: (name) => agentNamed(client, name),
    get: (id) => client.getAgent(id),
    fits: (agent) => hasLabels(agent, labels),
  });
}

async function listAndWatch<T extends { readonly id: string }>(
  context: CommandContext,
  { client, flags, typed, shown, cursor, list, named, get, fits }: Watched<T>,
): Promise<void> {
  const after = flags.watch === true ? (await cursor()).cursor : undefined;
  const items = await getList(context, flags, shown, list, { typed, get: named });
  if (after === undefined) return;
  const ids = new Set(items.map(({ id }) => id));
  await watchList(context, flags, client, shown, {
    after,
    get,
    fits: (item) => (typed.length > 0 ? ids.has(item.id) : fits(item)),
  });
}

function hasLabels(
  item: { readonly labels: Readonly<Record<string, string>> },
  labels: Readonly<Record<string, string>>,
): boolean {
  return Object.entries(labels).every(([key, value]) => item.labels[key] === value);
}

const shownJobs: Shown<JobView> = {
  kind: "job",
  heading: ["ID", "NAME", "STATE", "PRIORITY", "ATTEMPTS", "AGE", "LABELS"],
  row: (job, now) => [
    job.id,
    job.name,
    job.cancel_requested_at !== null && job.finished_at === null ? "cancelling" : job.state,
    String(job.priority),
    String(job.attempts),
    age(job.created_at, now),
    labelText(job.labels),
  ],
  nameOf: ({ id }) => id,
  none: spelled("no jobs; `holdfast run FILE` submits one"),
  color: (cell, column, colors) => (column === 2 ? stateColor(cell, colors)(cell) : cell),
};

const shownSessions: Shown<SessionView> = {
  kind: "session",
  heading: ["ID", "AGENT", "STATE", "WANTED", "REVISION", "AGE", "LABELS"],
  row: (session, now) => [
    session.id,
    `${session.agent} ${session.agent_version}`,
    session.state,
    session.desired_state,
    String(session.head_revision),
    age(session.created_at, now),
    labelText(session.labels),
  ],
  nameOf: ({ id }) => id,
  none: spelled("no sessions; `holdfast session start AGENT` begins one"),
  color: (cell, column, colors) => (column === 2 ? stateColor(cell, colors)(cell) : cell),
};

const shownAgents: Shown<AgentView> = {
  kind: "agent",
  heading: ["NAME", "VERSION", "RUNTIME", "AGE", "LABELS"],
  row: (agent, now) => [
    agent.name,
    String(agent.version),
    agent.spec.runtime ?? "",
    age(agent.created_at, now),
    labelText(agent.labels),
  ],
  nameOf: ({ name }) => name,
  none: spelled("no agents; `holdfast agent apply FILE` makes one"),
};
