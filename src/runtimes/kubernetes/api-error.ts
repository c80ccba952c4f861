/** Statuses after which the same request may succeed unchanged. */
const retryableStatuses = new Set([429, 502, 503, 504]);
const retryableReasons = new Set(["InternalError", "ServerTimeout", "Timeout", "TooManyRequests"]);
/**
 * Right after a namespace was made, or while its controllers lag, the service account is not there yet and a
 * create is forbidden for some seconds. Nothing but the message tells this from a lack of rights.
 */
const laggingServiceAccount = "error looking up service account";
const messageLengthMax = 1_000;

/** What went wrong between us and the API server. Matched on `status` and `reason`, never on the message. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  /** The HTTP status; 0 when there was no answer, so that it is unknown whether the request took effect. */
  readonly status: number;
  /** The server's reason (`NotFound`, `AlreadyExists`, `Conflict`, `Invalid`, `Expired` …), or ours. */
  readonly reason: string;
  readonly retryable: boolean;
  readonly retryAfterMs: number | null;

  constructor(
    status: number,
    reason: string,
    message: string,
    more: { readonly retryAfterMs?: number | null; readonly cause?: unknown } = {},
  ) {
    super(message.slice(0, messageLengthMax), { cause: more.cause });
    this.status = status;
    this.reason = reason;
    this.retryAfterMs = more.retryAfterMs ?? null;
    this.retryable =
      status === 0 ||
      retryableStatuses.has(status) ||
      retryableReasons.has(reason) ||
      (status === 403 && message.includes(laggingServiceAccount));
  }
}

export function isApiError(error: unknown, ...statuses: readonly number[]): error is ApiError {
  return error instanceof ApiError && (statuses.length === 0 || statuses.includes(error.status));
}

/** There was no answer: refused, reset, timed out. The request may have taken effect. */
export function noAnswer(what: string, cause: unknown): ApiError {
  const words = cause instanceof Error ? cause.message : String(cause);
  return new ApiError(0, "NoAnswer", `${what}: the API server did not answer: ${words}`, { cause });
}

/** An answer that is no success: a Status object, or the plain text of a proxy or an unknown path. */
export function errorOf(
  what: string,
  status: number,
  body: string,
  retryAfter: string | undefined,
): ApiError {
  const seen = readStatus(body);
  const header = retryAfter === undefined || !/^\d{1,6}$/.test(retryAfter) ? null : Number(retryAfter);
  const seconds = header ?? seen?.retryAfterSeconds ?? null;
  const message = seen?.message ?? body.trim();
  return new ApiError(status, seen?.reason ?? "", `${what}: ${status} ${message}`, {
    retryAfterMs: seconds === null ? null : seconds * 1000,
  });
}

export interface StatusObject {
  readonly code: number;
  readonly reason: string;
  readonly message: string;
  readonly retryAfterSeconds: number | null;
}

/** Null for anything that is no Status object. Some errors of the server have no reason. */
export function readStatus(body: unknown): StatusObject | null {
  const value = typeof body === "string" ? parse(body) : body;
  if (!isRecord(value) || value.kind !== "Status") return null;
  const { code, reason, message, details } = value;
  const after = isRecord(details) ? details.retryAfterSeconds : undefined;
  return {
    code: typeof code === "number" ? code : 0,
    reason: typeof reason === "string" ? reason : "",
    message: typeof message === "string" ? message : "",
    retryAfterSeconds: typeof after === "number" ? after : null,
  };
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
