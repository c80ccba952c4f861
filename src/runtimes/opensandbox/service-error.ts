/** Statuses after which the same question may be answered, if it may be asked twice at all. */
const retryableStatuses = new Set([0, 408, 425, 429, 500, 502, 503, 504]);
const messageLengthMax = 1_000;

/** What went wrong between us and the service or its exec daemon. Matched on `status` and `code`, never on words. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
  /** The HTTP status; 0 when there was no whole answer, so that it is unknown whether anything took effect. */
  readonly status: number;
  /** The service's own (`KUBERNETES::SANDBOX_NOT_FOUND` …), or `""`. */
  readonly code: string;
  readonly retryable: boolean;
  readonly retryAfterMs: number | null;

  constructor(
    status: number,
    code: string,
    message: string,
    more: { readonly retryAfterMs?: number | null; readonly cause?: unknown } = {},
  ) {
    super(message.slice(0, messageLengthMax), { cause: more.cause });
    this.status = status;
    this.code = code;
    this.retryable = retryableStatuses.has(status);
    this.retryAfterMs = more.retryAfterMs ?? null;
  }
}

export function isServiceError(error: unknown, ...statuses: readonly number[]): error is ServiceError {
  return error instanceof ServiceError && (statuses.length === 0 || statuses.includes(error.status));
}

/** Refused, reset, timed out, cut off. */
export function noAnswer(what: string, cause: unknown): ServiceError {
  const reason = cause instanceof Error && cause.cause instanceof Error ? cause.cause : cause;
  const words = reason instanceof Error ? reason.message : String(reason);
  return new ServiceError(0, "", `${what}: no answer: ${words}`, { cause });
}

/**
 * An answer that is no success, in any of the shapes there are: the service's `{code, message}`, its framework's
 * `{detail: […]}`, the exec daemon's `{error}`, and a proxy's plain text.
 */
export function errorOf(
  what: string,
  status: number,
  body: string,
  retryAfter: string | null = null,
): ServiceError {
  const { code, message } = readErrorBody(body);
  const retryAfterMs = retryAfter !== null && /^\d{1,6}$/.test(retryAfter) ? Number(retryAfter) * 1000 : null;
  return new ServiceError(status, code, `${what}: ${status} ${code} ${message}`.replaceAll(/ +/g, " "), {
    retryAfterMs,
  });
}

export function readErrorBody(body: string): { readonly code: string; readonly message: string } {
  const value = parse(body);
  if (!isRecord(value)) return { code: "", message: body.trim() };
  const { code, message, detail, error } = value;
  if (typeof code === "string" || typeof message === "string") {
    return {
      code: typeof code === "string" ? code : "",
      message: typeof message === "string" ? message : "",
    };
  }
  if (Array.isArray(detail)) return { code: "", message: detail.map(detailWords).join("; ") };
  // The framework wraps what the service raises by hand.
  if (isRecord(detail)) return readErrorBody(JSON.stringify(detail));
  const words = typeof detail === "string" ? detail : typeof error === "string" ? error : body.trim();
  return { code: "", message: words };
}

function detailWords(item: unknown): string {
  if (!isRecord(item)) return String(item);
  const place = Array.isArray(item.loc) ? item.loc.join(".") : "";
  return `${place} ${typeof item.msg === "string" ? item.msg : ""}`.trim();
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
