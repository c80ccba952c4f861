import { Command } from "commander";
import type { AgentSubmission, AgentView, Client } from "../client/client.ts";
import { parseAgentFile } from "../wire/agent-file.ts";
import { HoldfastError } from "../wire/holdfast-error.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { readResource } from "./job-source.ts";
import { at, serverCommand } from "./server-command.ts";

/** `holdfast agent …`. */
export function agentCommand(context: CommandContext, program: Command): Command {
  const command = new Command("agent").description(
    "make, change and delete the agents that sessions are begun with",
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
    "delete <name>",
    "delete an agent that has no sessions",
    ["text", "json", "name"],
    [["holdfast agent delete notes", "its name is free again"]],
  ).action((name: string, flags: ServerFlags) => remove(context, name, at(program, flags)));
  return command;
}

/** By its name, or as `get agents -o name` prints it. */
export async function agentNamed(client: Client, typed: string): Promise<AgentView> {
  const name = typed.replace(/^agents?\//, "");
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
