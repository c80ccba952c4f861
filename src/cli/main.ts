import { readFileSync } from "node:fs";
import { join } from "node:path";
import { CommanderError } from "commander";
import { config, parseConfig } from "../config.ts";
import { type ExitCode, exitCodes } from "../wire/exit-codes.ts";
import { isHoldfastError } from "../wire/holdfast-error.ts";
import type { CommandContext } from "./context.ts";
import { Exit, failureOf, failureText, UsageError } from "./failures.ts";
import { createProgram } from "./program.ts";
import { processTerminal, type Terminal } from "./terminal.ts";

/** The command line. Ends by itself when nothing is left to do, so that everything written arrives. */
process.exitCode = await main(process.argv.slice(2));

async function main(words: readonly string[]): Promise<ExitCode> {
  // Without a valid configuration there is still a terminal to say so on.
  const plain = parseConfig({});
  let terminal = processTerminal({ noColor: true, terminal: plain.terminal });
  try {
    const settings = config();
    terminal = processTerminal({ noColor: settings.noColor !== null, terminal: settings.terminal });
    for (const warning of settings.warnings) await terminal.err(`warning: ${warning}\n`);
    const context: CommandContext = {
      config: settings,
      terminal,
      directory: process.cwd(),
      version: packageVersion(),
      now: () => Date.now(),
    };
    return await runProgram(context, words);
  } catch (error) {
    return fail(terminal, words, error);
  }
}

async function runProgram(context: CommandContext, words: readonly string[]): Promise<ExitCode> {
  const { terminal } = context;
  let complaint = "";
  // The program's own `--version` comes before any command: after one it is that of a version of Work.
  const [first] = words;
  const program = createProgram(context, first?.startsWith("-") === false ? null : context.version);
  const settle = (command: typeof program) => {
    command.exitOverride().configureOutput({
      writeOut: (text) => void terminal.out(text),
      writeErr: (text) => {
        complaint += text;
      },
    });
    for (const one of command.commands) settle(one);
  };
  settle(program);
  if (words.length === 0) {
    program.outputHelp();
    return exitCodes.ok;
  }
  try {
    await program.parseAsync(words, { from: "user" });
    return exitCodes.ok;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode === 0) return exitCodes.ok;
    // A group without its command prints its help as a complaint.
    if (error.code === "commander.help") {
      await terminal.err(complaint);
      return exitCodes.usage;
    }
    throw new UsageError(
      complaint
        .replace(/^error: /, "")
        .trim()
        .replaceAll(/\s+/g, " "),
      "`holdfast help COMMAND` has examples.",
    );
  }
}

async function fail(terminal: Terminal, words: readonly string[], error: unknown): Promise<ExitCode> {
  if (error instanceof Exit) return error.code;
  const failure = failureOf(error);
  if (wantsJson(words)) await terminal.err(`${JSON.stringify({ error: failure })}\n`);
  else await terminal.err(failureText(error, terminal.errorColors));
  // What has no code of its own is a fault of ours: its stack helps whoever looks into it.
  if (failure.code === "internal" && !isHoldfastError(error) && error instanceof Error && !wantsJson(words)) {
    await terminal.err(`${error.stack ?? ""}\n`);
  }
  return failure.exit_code;
}

/** Also when the line could not be parsed. */
function wantsJson(words: readonly string[]): boolean {
  return words.some(
    (word, index) =>
      ["-ojson", "--output=json"].includes(word) ||
      (["-o", "--output"].includes(word) && words[index + 1] === "json"),
  );
}

function packageVersion(): string {
  const text = readFileSync(join(import.meta.dirname, "../../package.json"), "utf8");
  return (JSON.parse(text) as { readonly version: string }).version;
}
