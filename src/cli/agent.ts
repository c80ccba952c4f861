import { Command } from "commander";
import type { AgentSubmission, AgentView, Client } from "../client/client.ts";
import { parseAgentFile } from "../wire/agent-file.ts";
import { HoldfastError } from "../wire/holdfast-error.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { labelFlag } from "./flags.ts";
import { readResource } from "./job-source.ts";
import { at, serverCommand } from "./server-command.ts";
import { tableText } from "./table.ts";
import { age } from "./time-text.ts";

interface GetFlags extends ServerFlags {
  readonly label: Readonly<Record<string, string>>;
}

/** `holdfast agent …`. */
export function agentCommand(context: CommandContext, program: Command): Command {
  const command = new Command("agent").description(
    "make, change and list the agents that sessions are begun with",
  );
  serverCommand(
    command,
    "apply <file>",
    "make the agent of a file, or bring the one of its name to what the file says",
    ["text", "json", "yaml", "name"],
    [
      ["holdfast agent apply agent.yaml", "a changed template is the next version; sessions keep theirs"],
      ["holdfast agent apply - < agent.yaml", "from standard input"],
    ],
  ).action((file: string, flags: ServerFlags) => apply(context, file, at(program, flags)));
  serverCommand(
    command,
    "get [name...]",
    "agents, newest first",
    ["text", "json", "yaml", "name"],
    [
      ["holdfast agent get", "all of them"],
      ["holdfast agent get notes -o yaml", "one, with its template"],
    ],
  )
    .addOption(labelFlag())
    .action((names: string[], flags: GetFlags) => get(context, names, at(program, flags)));
  serverCommand(
    command,
    "delete <name>",
    "delete an agent that has no sessions",
    ["text", "json", "name"],
    [["holdfast agent delete notes", "its name is free again"]],
  ).action((name: string, flags: ServerFlags) => remove(context, name, at(program, flags)));
  return command;
}

export async function agentNamed(client: Client, name: string): Promise<AgentView> {
  const found = await findAgent(client, name);
  if (found === undefined) throw new HoldfastError("not_found", `there is no agent ${name}`);
  return found;
}

async function findAgent(client: Client, name: string): Promise<AgentView | undefined> {
  for await (const agent of client.listAgents({ name })) if (agent.deleted_at === null) return agent;
  return undefined;
}

async function apply(context: CommandContext, file: string, flags: ServerFlags): Promise<void> {
  const submission = await readResource(file, parseAgentFile);
  const client = clientOf(context, flags);
  const before = await findAgent(client, submission.metadata.name);
  const agent =
    before === undefined ? await client.createAgent(submission) : await bring(client, before, submission);
  const word =
    before === undefined
      ? "created"
      : agent.resource_version === before.resource_version
        ? "unchanged"
        : "changed";
  await print(context, flags, agent, `agent ${agent.name} ${word}, version ${agent.version}\n`);
}

/** What the file doesn't name of the labels goes; a template that is the same makes no version. */
function bring(client: Client, before: AgentView, { metadata, spec }: AgentSubmission): Promise<AgentView> {
  const gone = Object.keys(before.labels).map((key): [string, null] => [key, null]);
  const labels = { ...Object.fromEntries(gone), ...metadata.labels };
  const patch = { spec, ...(Object.keys(labels).length === 0 ? {} : { labels }) };
  return client.patchAgent(before.id, patch, { ifMatch: client.etagOf(before) });
}

async function get(context: CommandContext, names: readonly string[], flags: GetFlags): Promise<void> {
  const client = clientOf(context, flags);
  const agents: AgentView[] = [];
  if (names.length === 0) {
    for await (const agent of client.listAgents({ labels: flags.label })) agents.push(agent);
  }
  for (const name of names) agents.push(await agentNamed(client, name));
  const shown = names.length === 1 ? agents[0] : { items: agents };
  if (flags.output === "json" || flags.output === "yaml") return printValue(context, flags.output, shown);
  if (flags.output === "name")
    return context.terminal.out(agents.map(({ name }) => `agent/${name}\n`).join(""));
  if (agents.length === 0) return context.terminal.err("no agents; `holdfast agent apply FILE` makes one\n");
  const rows = agents.map((agent) => [
    agent.name,
    String(agent.version),
    agent.spec.runtime ?? "",
    age(agent.created_at, context.now()),
    Object.entries(agent.labels)
      .map(([key, value]) => `${key}=${value}`)
      .join(","),
  ]);
  await context.terminal.out(tableText(["NAME", "VERSION", "RUNTIME", "AGE", "LABELS"], rows));
}

async function remove(context: CommandContext, name: string, flags: ServerFlags): Promise<void> {
  const client = clientOf(context, flags);
  const agent = await client.deleteAgent((await agentNamed(client, name)).id);
  await print(context, flags, agent, `agent ${agent.name} deleted\n`);
}

async function print(
  context: CommandContext,
  { output }: ServerFlags,
  agent: AgentView,
  text: string,
): Promise<void> {
  if (output === "json" || output === "yaml") return printValue(context, output, agent);
  await context.terminal.out(output === "name" ? `agent/${agent.name}\n` : text);
}
