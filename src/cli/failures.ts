import { ApiError } from "../client/client.ts";
import { type ErrorCode, errorCatalogue, isErrorCode } from "../wire/errors.ts";
import { type ExitCode, exitCodeOf, exitCodes } from "../wire/exit-codes.ts";
import { type FieldError, HoldfastError } from "../wire/holdfast-error.ts";
import { spelled } from "./program-name.ts";
import type { Colors } from "./terminal.ts";
import { visible } from "./visible.ts";

/** The command line itself is wrong, or what it names on this machine. `next` says what to do. */
export class UsageError extends Error {
  override readonly name = "UsageError";
  readonly next: string | null;

  constructor(message: string, next: string | null = null) {
    super(message);
    this.next = next;
  }
}

/** An error of the catalogue for which this command knows better what to do than the catalogue does. */
export class Advised extends HoldfastError {
  readonly next: string;

  constructor(code: ErrorCode, detail: string, next: string) {
    super(code, detail);
    this.next = next;
  }
}

/** A file with its mistakes: the lines to show them in. */
export class FileError extends Error {
  override readonly name = "FileError";
  readonly file: string;
  readonly text: string;
  readonly refused: HoldfastError;

  constructor(file: string, text: string, refused: HoldfastError) {
    super(refused.detail);
    this.file = file;
    this.text = text;
    this.refused = refused;
  }
}

/** A command that has said everything itself and only ends with a code. */
export class Exit extends Error {
  override readonly name = "Exit";
  readonly code: ExitCode;

  constructor(code: ExitCode) {
    super(`exit ${code}`);
    this.code = code;
  }
}

/** Any error as plain facts: what `-o json` prints, and what the text is made of. */
export interface Failure {
  readonly code: string;
  readonly detail: string;
  readonly next: string | null;
  readonly errors: readonly FieldError[];
  readonly request_id: string | null;
  readonly exit_code: ExitCode;
}

export function failureOf(error: unknown): Failure {
  if (error instanceof FileError) return { ...failureOf(error.refused), next: null };
  if (error instanceof UsageError) {
    const next = error.next === null ? null : spelled(error.next);
    return failure("usage", error.message, next, exitCodes.usage);
  }
  if (error instanceof Advised) {
    return { ...known(error.code, error.detail), next: spelled(error.next) };
  }
  if (error instanceof HoldfastError) {
    return { ...known(error.code, error.detail), errors: error.fields };
  }
  if (error instanceof ApiError) {
    const { code, detail, errors, requestId, retryAfterSeconds } = error;
    const ours = code === "invalid_json" ? inWhatWeSent(errors) : null;
    return { ...known(code, detail, retryAfterSeconds), errors, ...ours, request_id: requestId };
  }
  const detail = error instanceof Error ? error.message : String(error);
  return failure("internal", detail, null, exitCodes.failure);
}

/** We made the body: its lines and columns are in no file of the user's, and only the member tells him anything. */
function inWhatWeSent(errors: readonly FieldError[]): Pick<Failure, "detail" | "errors"> | null {
  if (errors.length === 0) return null;
  const placed = errors.map(({ pointer, message }) => ({ pointer, message }));
  const detail = placed.map(({ pointer, message }) => `${memberOf(pointer)}: ${message}`).join("; ");
  return { detail, errors: placed };
}

function known(code: string, detail: string, retryAfterSeconds: number | null = null): Failure {
  if (!isErrorCode(code)) return failure(code, detail, null, exitCodes.failure);
  return failure(code, detail, nextHere(code, retryAfterSeconds), exitCodeOf(code));
}

/** What to do next. The catalogue speaks to whoever sends HTTP requests; this is for whoever types commands. */
export function nextHere(code: ErrorCode, retryAfterSeconds: number | null = null): string {
  const again = `ry again in ${Math.ceil(retryAfterSeconds ?? 5)} seconds`;
  const text = typedNext[code] ?? errorCatalogue[code].next;
  return spelled(
    text
      .replaceAll("`detail`", "the message")
      .replace("Wait for `Retry-After` seconds", `T${again}`)
      .replace("wait for `Retry-After` seconds", `t${again}`),
  );
}

const typedNext: Partial<Record<ErrorCode, string>> = {
  invalid_request: "Correct what the message points at.",
  invalid_cursor: "Give a cursor exactly as it was printed, with the same flags.",
  unauthenticated: "Give a token that is neither expired nor revoked: HOLDFAST_TOKEN or --token-file.",
  method_not_allowed: "The server may be older than this command: update it.",
  request_timeout: "Try again.",
  cursor_expired: "List again, and watch from then on.",
  precondition_failed: "Somebody else changed it meanwhile: look at it again and repeat the command.",
  precondition_required: "Look at it again and repeat the command.",
  too_many_streams: "End what follows or watches elsewhere, or wait for `Retry-After` seconds.",
  invalid_idempotency_key: "Give --idempotency-key 1 to 255 visible ASCII characters without spaces.",
  idempotency_conflict: "Give another key: this one was used for another request.",
  payload_too_large: "Make the file smaller.",
};

function failure(code: string, detail: string, next: string | null, exit_code: ExitCode): Failure {
  return { code, detail, next, errors: [], request_id: null, exit_code };
}

/** What went wrong, where, and what to do next. */
export function failureText(error: unknown, colors: Colors): string {
  const { code, detail, next, errors, request_id } = failureOf(error);
  // Where there is one mistake, the detail is about it and says the same.
  const mistakes = errors.filter(({ message }) => !detail.includes(message));
  const lines = error instanceof FileError ? excerpts(error, colors) : mistakes.map(fieldText);
  lines.push(`${colors.red("error:")} ${visible(detail)}`);
  if (next !== null) lines.push(`  ${next}`);
  const request = request_id === null ? "" : `, request ${visible(request_id)}`;
  lines.push(colors.dim(`  (${visible(code)}${request})`));
  return `${lines.join("\n")}\n`;
}

function fieldText({ pointer, message }: FieldError): string {
  return `  ${visible(memberOf(pointer))}: ${visible(message)}`;
}

const memberOf = (pointer: string) => (pointer === "" ? "the body" : pointer);

/** `file:line:column: message`, as compilers write it, with the line and a caret under the place. */
function excerpts({ file, text, refused }: FileError, colors: Colors): string[] {
  const lines = text.split(/\r?\n/);
  return refused.fields.flatMap(({ message, line = 1, column = 1 }) => {
    const head = colors.bold(`${visible(file)}:${line}:${column}:`) + ` ${visible(message)}`;
    const source = lines[line - 1];
    if (source === undefined || source.trim() === "") return [head];
    const from = Math.max(0, column - 60);
    const shown = visible(source.slice(from, from + 120)).replaceAll("\t", " ");
    const before = visible(source.slice(from, column - 1)).length;
    return [head, `  ${shown}`, `  ${" ".repeat(before)}${colors.red("^")}`];
  });
}
