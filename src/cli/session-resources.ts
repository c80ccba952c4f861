import { type Command, Option } from "commander";
import type { CommandContext, ServerFlags } from "./context.ts";
import { labelFlag, limitFlag } from "./flags.ts";
import { at, serverCommand } from "./server-command.ts";

const states = ["pending", "idle", "running", "waiting", "suspended", "closed"];

/** Agents and sessions below `get` and `describe`. */
export function sessionResources(
  {
    program,
    get,
    describe,
  }: { readonly program: Command; readonly get: Command; readonly describe: Command },
  context: CommandContext,
): void {
  serverCommand(
    get,
    "sessions [id...]",
    "sessions of agents, newest first",
    ["text", "json", "yaml", "name"],
    [
      ["holdfast get sessions --agent notes", "of one agent"],
      ["holdfast get sessions --state waiting --watch", "those that need somebody, and each that comes to"],
      ["holdfast get sessions ID -o yaml", "all of one"],
    ],
  )
    .alias("session")
    .option("--agent <name>", "of this agent")
    .addOption(new Option("--state <state>", "observed in this state").choices(states))
    .addOption(labelFlag())
    .addOption(limitFlag())
    .option("-w, --watch", "go on with each change")
    .action(async (ids: string[], flags) =>
      (await import("./get.ts")).getSessions(context, ids, at(program, flags)),
    );

  serverCommand(
    get,
    "agents [name...]",
    "agents, newest first",
    ["text", "json", "yaml", "name"],
    [
      ["holdfast get agents", "all of them"],
      ["holdfast get agents notes -o yaml", "one, with its template"],
    ],
  )
    .alias("agent")
    .addOption(labelFlag())
    .addOption(limitFlag())
    .option("-w, --watch", "go on with each change")
    .action(async (names: string[], flags) =>
      (await import("./get.ts")).getAgents(context, names, at(program, flags)),
    );

  serverCommand(
    describe,
    "session <id>",
    "how a session stands and why, its last turns and revisions",
    ["text", "json", "yaml"],
    [["holdfast describe session ID", "what it waits for, and what it remembers"]],
  ).action(async (id: string, flags: ServerFlags) =>
    (await import("./describe-session.ts")).describeSession(context, id, at(program, flags)),
  );

  serverCommand(
    describe,
    "agent <name>",
    "an agent and its template",
    ["text", "json", "yaml"],
    [["holdfast describe agent notes", "in words"]],
  ).action(async (name: string, flags: ServerFlags) =>
    (await import("./describe-session.ts")).describeAgent(context, name, at(program, flags)),
  );
}
