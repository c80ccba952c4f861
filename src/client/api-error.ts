import { type ErrorCode, errorCatalogue, isErrorCode } from "../wire/errors.ts";
import type { FieldError } from "../wire/holdfast-error.ts";

/**
 * What the server refused, or `unreachable` with status 0 when nothing answered. `code` decides what to do;
 * a code that this release does not know yet is passed on as it came.
 */
export class ApiError extends Error {
  override readonly name: string = "ApiError";
  readonly code: ErrorCode | (string & {});
  /** The HTTP status; 0 when there was no answer. */
  readonly status: number;
  readonly detail: string;
  readonly errors: readonly FieldError[];
  /** For asking the server's operators for help. */
  readonly requestId: string | null;
  readonly retryAfterSeconds: number | null;
  /** All members of the problem document. */
  readonly problem: Readonly<Record<string, unknown>>;

  constructor(facts: {
    readonly code: string;
    readonly status: number;
    readonly detail: string;
    readonly errors?: readonly FieldError[];
    readonly requestId?: string | null;
    readonly retryAfterSeconds?: number | null;
    readonly problem?: Readonly<Record<string, unknown>>;
    readonly cause?: unknown;
  }) {
    super(facts.detail, facts.cause === undefined ? undefined : { cause: facts.cause });
    this.code = facts.code;
    this.status = facts.status;
    this.detail = facts.detail;
    this.errors = facts.errors ?? [];
    this.requestId = facts.requestId ?? null;
    this.retryAfterSeconds = facts.retryAfterSeconds ?? null;
    this.problem = facts.problem ?? {};
  }

  /** Whether the same request may succeed later, unchanged. */
  get retryable(): boolean {
    return isErrorCode(this.code)
      ? errorCatalogue[this.code].retryable
      : [0, 408, 429, 500, 502, 503, 504].includes(this.status);
  }
}

/** The cursor is older than what the server keeps. List again, then watch from `cursor`. */
export class CursorExpiredError extends ApiError {
  override readonly name = "CursorExpiredError";

  get cursor(): string | null {
    return typeof this.problem["cursor"] === "string" ? this.problem["cursor"] : null;
  }
}

/** Nothing answered, or the connection broke. */
export function unreachable(url: string, cause: unknown): ApiError {
  const { origin } = new URL(url);
  return new ApiError({
    code: "unreachable",
    status: 0,
    detail: `${origin} can't be reached: ${reasonOf(cause)}`,
    cause,
  });
}

/** An answer that is none of ours: a proxy's page, another program on the port, a broken stream. */
export function unexpected(detail: string, status: number, cause?: unknown): ApiError {
  return new ApiError({ code: "unexpected_answer", status, detail, cause });
}

const problemBytesMax = 1_048_576;

export async function errorOf(response: Response): Promise<ApiError> {
  const text = (await response.text().catch(() => "")).slice(0, problemBytesMax);
  return problemError(text, response.status, response.headers);
}

/** An error from a problem document (RFC 9457), as a body or inside a stream. */
export function problemError(text: string, status: number, headers?: Headers): ApiError {
  const problem = parsed(text);
  const requestId = headers?.get("x-request-id") ?? textOf(problem["request_id"]);
  const retryAfterSeconds = retryAfter(headers?.get("retry-after") ?? null);
  const code = textOf(problem["code"]);
  if (code === null) {
    const detail = `the answer was HTTP ${status} without a problem document: is this a Holdfast server?`;
    return new ApiError({ code: "unexpected_answer", status, detail, requestId, retryAfterSeconds });
  }
  const facts = {
    code,
    status: typeof problem["status"] === "number" ? problem["status"] : status,
    detail: textOf(problem["detail"]) ?? textOf(problem["title"]) ?? code,
    errors: fieldErrors(problem["errors"]),
    requestId,
    retryAfterSeconds,
    problem,
  };
  return code === "cursor_expired" ? new CursorExpiredError(facts) : new ApiError(facts);
}

function parsed(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}

function fieldErrors(value: unknown): FieldError[] {
  if (!Array.isArray(value)) return [];
  return value.flatMap((item: unknown): FieldError[] => {
    if (typeof item !== "object" || item === null) return [];
    const { pointer, message, detail } = item as Readonly<Record<string, unknown>>;
    return [{ pointer: textOf(pointer) ?? "", message: textOf(message) ?? textOf(detail) ?? "is not valid" }];
  });
}

/** Seconds, or a date from which they are counted. */
function retryAfter(text: string | null): number | null {
  if (text === null) return null;
  const seconds = /^\d{1,9}$/.test(text) ? Number(text) : (Date.parse(text) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? null : Math.max(0, seconds);
}

const textOf = (value: unknown): string | null => (typeof value === "string" ? value : null);

/** `fetch failed` says nothing; its cause does. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { cause } = error;
  if (cause instanceof Error && cause.message !== "") return cause.message;
  const code = typeof cause === "object" && cause !== null && "code" in cause ? String(cause.code) : "";
  return code === "" ? error.message : code;
}
