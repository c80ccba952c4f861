import type { Command } from "commander";

const loaders = new WeakMap<Command, () => Promise<Command>>();

/**
 * A command that is only known by name until it is called: its module, flags and help come from `load`, and
 * the whole rest of the line is handed to it.
 */
export function lazyCommand(
  program: Command,
  name: string,
  description: string,
  load: () => Promise<Command>,
): void {
  const stub = program
    .command(name)
    .description(description)
    .helpOption(false)
    .allowUnknownOption()
    .argument("[arguments...]")
    .usage("[arguments...]")
    .action(async (words: string[]) => {
      const command = await load();
      inherit(command, program);
      command.name(`${program.name()} ${name}`);
      await command.parseAsync(words, { from: "user" });
    });
  loaders.set(stub, load);
}

/** The command itself, with its flags and commands. */
export async function loaded(command: Command): Promise<Command> {
  return (await loaders.get(command)?.()) ?? command;
}

/** Errors and output go the way of the program's own commands. */
function inherit(command: Command, program: Command): void {
  command.copyInheritedSettings(program);
  for (const one of command.commands) inherit(one, program);
}
