import type { ErrorCode } from "../../wire/errors.ts";
import { HoldfastError, isHoldfastError } from "../errors.ts";

/** What the driver puts on an error that the server sent. Read structurally: nothing outside depends on its class. */
interface ServerError extends Error {
  readonly code: string;
  readonly severity: unknown;
  readonly constraint?: string;
}

function isServerError(error: unknown): error is ServerError {
  // The system's EPIPE has five letters too, but no severity.
  return (
    error instanceof Error &&
    "severity" in error &&
    "code" in error &&
    typeof error.code === "string" &&
    error.code.length === 5
  );
}

/** Our own SQLSTATEs (listed in 0001_foundation.sql) and the few of PostgreSQL's that mean something to a caller. */
const bySqlstate: Readonly<Record<string, ErrorCode>> = {
  HF001: "fenced",
  HF002: "conflict",
  HF003: "conflict",
  HF004: "deployment_fenced",
  HF005: "tenant_disabled",
  HF006: "sandbox_fenced",
  HF007: "pins_missing",
  HF008: "conflict",
  HF009: "conflict",
  HF010: "conflict",
  HF011: "work_not_registered",
  HF012: "work_retired",
  HF013: "deadline_elapsed",
  HF014: "idempotency_conflict",
  HF015: "conflict",
  HF016: "admission_closed",
  HF017: "draining",
  HF018: "processes_alive",
  HF019: "schema_incompatible",
  // Text that jsonb can't hold.
  "22P05": "invalid_request",
};

/** Named constraints that a caller can run into. Any other violated constraint is a fault of ours: `internal`. */
const byConstraint: Readonly<Record<string, ErrorCode>> = {
  activations_one_at_work: "conflict",
  agents_name_taken: "conflict",
  commands_key_taken: "idempotency_conflict",
  execution_attempts_pkey: "plan_conflict",
  execution_attempts_at_most_two: "attempts_exhausted",
  execution_attempts_one_active: "conflict",
  execution_attempts_deadline_within_three_hours: "invalid_request",
  principals_name_taken: "conflict",
  sandbox_attempts_one_alive: "conflict",
  sandbox_attempts_name_taken: "conflict",
  tenants_pkey: "conflict",
  work_items_circuit_key: "invalid_request",
  work_items_input: "invalid_request",
  work_items_key: "invalid_request",
  work_items_legacy_has_no_timing: "invalid_request",
  work_items_plan_or_deadline: "invalid_request",
  work_items_priority: "invalid_request",
  work_items_provider_key: "invalid_request",
  work_items_queue: "invalid_request",
  work_proofs_pkey: "conflict",
};

/** Where the server's words name a constraint, and the caller needs to know what is wanted. */
const wordsByConstraint: Readonly<Record<string, string>> = {
  work_items_legacy_has_no_timing:
    "this version of the work is registered without a deadline, and takes none",
  work_items_plan_or_deadline:
    "this version of the work is registered with a deadline: each submission has to name one",
};

const retryable = new Set(["40001", "40P01"]);
/** A drain lasts for minutes: whoever is refused needn't ask each second. */
const drainRetrySeconds = 30;
/** The server or the way to it went away, or it took longer than its limit; whether a commit happened is unknown. */
const unavailable = /^(08...|57P0[1-5]|53...|57014|55P03|25P0[34])$/;

const readOnlyTransaction = "25006";

/**
 * The server that this connection leads to takes no writes: a standby, or one that another has replaced. The address
 * may lead to the other by now, so the connection is worth nothing any more.
 */
export function isReadOnly(error: unknown): boolean {
  return sqlstateOf(error) === readOnlyTransaction;
}

/** The caller, too, asks again: by then a standby has been promoted, or the address leads to another server. */
export function readOnlyServer(cause?: unknown): HoldfastError {
  return new HoldfastError(
    "unavailable",
    "the database takes no writes: the address leads to a standby, or to a server that is read-only",
    { cause, retryAfterSeconds: 1 },
  );
}

/** Serialisation failure or deadlock: the whole transaction may be run again, and nothing of it happened (G14). */
export function isRetryable(error: unknown): boolean {
  return isServerError(error) && retryable.has(error.code);
}

export function sqlstateOf(error: unknown): string | undefined {
  return isServerError(error) ? error.code : undefined;
}

export function constraintOf(error: unknown): string | undefined {
  return isServerError(error) ? error.constraint : undefined;
}

/**
 * Why the first connection of a process was refused in a way that trying again does not mend; undefined for anything
 * else. Later ones are tried again instead: what was right once may be right again.
 */
export function refusedLogin(error: unknown): HoldfastError | undefined {
  if (!isServerError(error)) return undefined;
  switch (error.code) {
    // Told so when a connection asks for a role that does not exist.
    case "22023":
      return new HoldfastError(
        "schema_missing",
        `${error.message}: \`holdfast schema roles\` makes the roles, as somebody who may`,
        { cause: error },
      );
    case "28000":
    case "28P01":
      return new HoldfastError(
        "invalid_configuration",
        `the database refuses this login: ${error.message}. Correct user and password in its URL, or make the login`,
        { cause: error },
      );
    // Only a connection that does not come about is fatal: it may not enter the database, or not play the role.
    case "42501":
      if (error.severity !== "FATAL") return undefined;
      return new HoldfastError(
        "invalid_configuration",
        `the database refuses this login: ${error.message}. Grant it what it lacks; a role WITH INHERIT FALSE, SET TRUE`,
        { cause: error },
      );
    case "3D000":
      return new HoldfastError(
        "invalid_configuration",
        `${error.message}. Correct its name in the URL, or create it`,
        { cause: error },
      );
    default:
      return undefined;
  }
}

/** `translate`, for the first contact with a server. */
export function translateFirst(error: unknown): unknown {
  return refusedLogin(error) ?? translate(error);
}

/** The error that callers see for what the driver threw. The cause stays attached for the log, never for the wire. */
export function translate(error: unknown): unknown {
  if (isHoldfastError(error) || !(error instanceof Error)) return error;
  if (!isServerError(error)) {
    return isConnectionFault(error)
      ? new HoldfastError("unavailable", "the database cannot be reached", {
          cause: error,
          retryAfterSeconds: 1,
        })
      : error;
  }
  const code =
    bySqlstate[error.code] ?? (error.constraint === undefined ? undefined : byConstraint[error.constraint]);
  if (code !== undefined) {
    const again = code === "draining" ? { retryAfterSeconds: drainRetrySeconds } : {};
    const words = wordsByConstraint[error.constraint ?? ""] ?? error.message;
    return new HoldfastError(code, words, { cause: error, ...again });
  }
  if (isReadOnly(error)) return readOnlyServer(error);
  if (retryable.has(error.code) || unavailable.test(error.code)) {
    return new HoldfastError("unavailable", "the database did not finish the transaction", {
      cause: error,
      retryAfterSeconds: 1,
    });
  }
  return error;
}

const connectionFaults = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ENOENT",
  "ETIMEDOUT",
  "EHOSTUNREACH",
  "ENOTFOUND",
  "ERR_STREAM_DESTROYED",
  "ERR_STREAM_WRITE_AFTER_END",
]);

function isConnectionFault(error: Error): boolean {
  if ("code" in error && typeof error.code === "string") return connectionFaults.has(error.code);
  // The driver gives these no code of their own.
  return (
    error.message.startsWith("Connection terminated") ||
    error.message === "Query read timeout" ||
    error.message.endsWith("is not queryable") ||
    error.message.startsWith("timeout exceeded when trying to connect")
  );
}
