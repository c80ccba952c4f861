import { type ErrorCode, type ErrorEntry, errorCatalogue } from "./errors.ts";

/** Where a request is wrong: a JSON pointer (RFC 6901), and in files that people write, the line and column. */
export interface FieldError {
  readonly pointer: string;
  readonly message: string;
  readonly line?: number;
  readonly column?: number;
}

/**
 * The only error that Holdfast throws on purpose. `code` is stable and is what callers decide by; `detail` is
 * for people and never matched on. It carries no payload and no secret.
 */
export class HoldfastError extends Error {
  override readonly name = "HoldfastError";
  readonly code: ErrorCode;
  readonly detail: string;
  readonly fields: readonly FieldError[];
  readonly retryAfterSeconds: number | null;
  /** Further members of the problem document, such as a fresh `cursor`. */
  readonly extra: Readonly<Record<string, unknown>>;

  constructor(
    code: ErrorCode,
    detail: string,
    options: {
      readonly fields?: readonly FieldError[];
      readonly retryAfterSeconds?: number;
      readonly extra?: Readonly<Record<string, unknown>>;
      readonly cause?: unknown;
    } = {},
  ) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.detail = detail;
    this.fields = options.fields ?? [];
    this.retryAfterSeconds = options.retryAfterSeconds ?? null;
    this.extra = options.extra ?? {};
  }

  get entry(): ErrorEntry {
    return errorCatalogue[this.code];
  }
}

export function isHoldfastError(error: unknown, code?: ErrorCode): error is HoldfastError {
  return error instanceof HoldfastError && (code === undefined || error.code === code);
}
