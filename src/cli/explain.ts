import { type ErrorCode, errorCatalogue, isErrorCode } from "../wire/errors.ts";
import { exitCodeOf } from "../wire/exit-codes.ts";
import { type CommandContext, printValue, type ServerFlags } from "./context.ts";
import { nextHere, UsageError } from "./failures.ts";
import { printList } from "./listing.ts";

interface Explanation {
  readonly code: ErrorCode;
  readonly title: string;
  readonly status: number;
  readonly retryable: boolean;
  readonly exit_code: number;
  /** For whoever sends HTTP requests. */
  readonly next: string;
  /** For whoever types commands. */
  readonly next_here: string;
}

function explanationOf(code: ErrorCode): Explanation {
  const { title, status, retryable, next } = errorCatalogue[code];
  return { code, title, status, retryable, exit_code: exitCodeOf(code), next, next_here: nextHere(code) };
}

/** `holdfast explain [CODE]`: what an error code means and what to do. Asks no server. */
export async function explain(
  context: CommandContext,
  typed: string | undefined,
  flags: ServerFlags,
): Promise<void> {
  if (typed === undefined) return all(context, flags);
  const code = typed.trim().toLowerCase();
  if (!isErrorCode(code)) throw unknown(typed, code);
  const one = explanationOf(code);
  if (flags.output === "json" || flags.output === "yaml") return printValue(context, flags.output, one);
  const { colors } = context.terminal;
  const lines = [
    `${colors.bold(one.code)}: ${one.title}.`,
    "",
    `  What to do    ${one.next_here}`,
    ...(one.next === one.next_here ? [] : [`  Over HTTP     ${one.next}`]),
    `  Again         ${one.retryable ? "yes: the same request can succeed later" : "no: the same request fails again"}`,
    `  HTTP status   ${one.status}`,
    `  Exit code     ${one.exit_code}`,
  ];
  await context.terminal.out(`${lines.join("\n")}\n`);
}

function all(context: CommandContext, flags: ServerFlags): Promise<void> {
  const codes = Object.keys(errorCatalogue).filter(isErrorCode);
  return printList(
    context,
    flags,
    {
      kind: "error",
      heading: ["CODE", "STATUS", "AGAIN", "MEANING"],
      row: ({ code, status, retryable, title }) => [code, String(status), retryable ? "yes" : "no", title],
      nameOf: ({ code }) => code,
      none: "",
    },
    codes.map(explanationOf),
    false,
  );
}

function unknown(typed: string, code: string): UsageError {
  const words = code.split(/[^a-z]+/).filter((word) => word.length > 2);
  const like = Object.keys(errorCatalogue).filter((known) => words.some((word) => known.includes(word)));
  const next =
    like.length > 0 ? `Did you mean ${like.slice(0, 5).join(", ")}?` : "`holdfast explain` lists all codes.";
  return new UsageError(`${JSON.stringify(typed)} is not an error code`, next);
}
