import type { CommandView } from "../client/client.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { tableText } from "./table.ts";
import { age } from "./time-text.ts";

export interface CommandFlags extends ServerFlags {
  readonly principal?: string;
  readonly operation?: string;
  readonly target?: string;
  readonly limit: number;
}

/** `holdfast get commands`: who asked for what, when, and what came of it. */
export async function getCommands(context: CommandContext, flags: CommandFlags): Promise<void> {
  const { principal, operation, target, limit, output } = flags;
  const commands: CommandView[] = [];
  const list = clientOf(context, flags).listCommands({
    principal,
    operation,
    target,
    limit: Math.min(limit, 200),
  });
  for await (const command of list) {
    commands.push(command);
    if (commands.length >= limit) break;
  }
  if (output === "json" || output === "yaml") return printValue(context, output, { items: commands });
  const { terminal, now } = context;
  if (commands.length === 0) return terminal.err("no command fits\n");
  const rows = commands.map((command) => [
    command.id,
    command.principal,
    command.operation,
    command.target,
    String(command.status),
    age(command.at, now()),
    command.request_id ?? "",
  ]);
  const heading = ["ID", "WHO", "OPERATION", "TARGET", "STATUS", "AGE", "REQUEST"];
  await terminal.out(tableText(heading, rows, (cell) => cell));
}
