import type { Command } from "commander";
import type { ConnectionFlags } from "./connection.ts";
import type { OutputFormat } from "./context.ts";
import { outputFlag } from "./flags.ts";

/** The command's own flags with those of every command. */
export function at<Flags extends object>(program: Command, flags: Flags): Flags & ConnectionFlags {
  return { ...program.opts<ConnectionFlags>(), ...flags };
}

export function serverCommand(
  parent: Command,
  nameAndArguments: string,
  description: string,
  formats: readonly OutputFormat[],
  examples: readonly (readonly [command: string, meaning: string])[],
): Command {
  const width = Math.max(...examples.map(([command]) => command.length));
  const lines = examples.map(([command, meaning]) => `  $ ${command.padEnd(width)}   ${meaning}`);
  return parent
    .command(nameAndArguments)
    .description(description)
    .addOption(outputFlag(...formats))
    .addHelpText("after", `\nExamples:\n${lines.join("\n")}`);
}
