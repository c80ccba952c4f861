import type { Argument, Command, Option } from "commander";
import { loaded } from "./lazy-command.ts";

const suggestions = new WeakMap<Argument | Option, () => readonly string[]>();

/** Words to offer for a value that is not one of a few: what is there when somebody asks. */
export function suggest(target: Argument | Option | undefined, words: () => readonly string[]): void {
  if (target !== undefined) suggestions.set(target, words);
}

function valuesOf(target: Argument | Option | undefined): readonly string[] {
  return target === undefined ? [] : (suggestions.get(target)?.() ?? target.argChoices ?? []);
}

/**
 * What could stand in the place of the last word of a line: commands, then flags, or the values of the flag
 * before it. An empty list leaves the word to the shell, which knows files.
 */
export async function completions(program: Command, words: readonly string[]): Promise<string[]> {
  const last = words.at(-1) ?? "";
  const { command, given } = await commandOf(program, words.slice(0, -1));
  const flags = [...command.options, ...program.options].filter(({ hidden }) => !hidden);
  const flagOf = (word: string | undefined) =>
    flags.find(({ long, short }) => word !== undefined && [long, short].includes(word));
  const before = words.length > 1 ? flagOf(words.at(-2)) : undefined;
  if (before !== undefined && (before.required || before.optional)) {
    return fitting(valuesOf(before), last);
  }
  const [, long, value] = /^(--[a-z-]+)=(.*)$/.exec(last) ?? [];
  if (value !== undefined) {
    return fitting(valuesOf(flagOf(long)), value).map((choice) => `${long ?? ""}=${choice}`);
  }
  if (last.startsWith("-")) return fitting([...flags.flatMap((flag) => flag.long ?? []), "--help"], last);
  const names = command.commands.filter((one) => one.name() !== completerName).map((one) => one.name());
  const argument = command.registeredArguments[given] ?? command.registeredArguments.at(-1);
  return fitting([...names, ...valuesOf(argument)], last);
}

/** The command that the words lead to, and how many arguments it has been given. */
async function commandOf(
  program: Command,
  words: readonly string[],
): Promise<{ readonly command: Command; readonly given: number }> {
  let command = program;
  let given = 0;
  for (const word of words) {
    const next = command.commands.find((one) => one.name() === word || one.aliases().includes(word));
    if (next !== undefined) command = await loaded(next);
    else if (!word.startsWith("-")) given += 1;
  }
  return { command, given };
}

/** The command that the shells' scripts call. */
export const completerName = "complete";

const fitting = (all: readonly string[], beginning: string): string[] =>
  [...new Set(all)].filter((one) => one.startsWith(beginning));

export const shells = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof shells)[number];

/** To be evaluated by the shell at its start. The words come from the program itself, so that they are never old. */
export const completionScript: Readonly<Record<Shell, string>> = {
  bash: `_holdfast() {
  local IFS=$'\\n'
  COMPREPLY=($(holdfast ${completerName} -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _holdfast holdfast
`,
  zsh: `_holdfast() {
  local -a found
  found=("\${(@f)$(holdfast ${completerName} -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}
compdef _holdfast holdfast
`,
  fish: `function __holdfast_complete
  set -l words (commandline -opc) (commandline -ct)
  holdfast ${completerName} -- $words[2..] 2>/dev/null
end
complete -c holdfast -a '(__holdfast_complete)'
`,
};
