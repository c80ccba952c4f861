import { type ErrorCode, errorCatalogue } from "./errors.ts";

/**
 * The command line's exit codes, for scripts and supervisors. They are part of the interface: a number never
 * changes its meaning. `docs/reference/errors.md` documents each.
 */
export const exitCodes = {
  ok: 0,
  /** Anything that has no code of its own. */
  failure: 1,
  /** The command, its flags or its file are wrong. */
  usage: 2,
  not_found: 3,
  /** Not authenticated, or not allowed. */
  denied: 4,
  /** The resource's state refuses it. */
  conflict: 5,
  /** The server or database can't be reached, or can't answer now: try again later. */
  unavailable: 6,
  /** The job that was followed failed. */
  job_failed: 7,
  /** The job that was followed was cancelled. */
  job_cancelled: 8,
  /** `doctor` found something wrong with the store. */
  findings: 9,
  /** This release and the store's schema do not fit: starting again can't help, another release does (M2). */
  schema_incompatible: 10,
  /** The store has no schema, another installation's, or migrations with other bytes. */
  schema_unusable: 11,
  /** The activation that was followed waits for somebody: a permission, or a word to try again. */
  action_required: 12,
  /** Ctrl-C, as shells report it. */
  interrupted: 130,
  /** Whoever read the output stopped reading, as shells report it. */
  broken_pipe: 141,
} as const;

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes];

const ownCodes: Partial<Record<ErrorCode, ExitCode>> = {
  schema_incompatible: exitCodes.schema_incompatible,
  schema_missing: exitCodes.schema_unusable,
  schema_drift: exitCodes.schema_unusable,
  installation_mismatch: exitCodes.schema_unusable,
  invalid_configuration: exitCodes.usage,
  port_taken: exitCodes.usage,
};

/** What a command ends with when it ends with this error. */
export function exitCodeOf(code: ErrorCode): ExitCode {
  return ownCodes[code] ?? exitCodeOfStatus(errorCatalogue[code].status);
}

function exitCodeOfStatus(status: number): ExitCode {
  switch (status) {
    case 400:
    case 413:
    case 415:
    case 428:
    case 431:
      return exitCodes.usage;
    case 401:
    case 403:
      return exitCodes.denied;
    case 404:
      return exitCodes.not_found;
    case 409:
    case 410:
    case 412:
      return exitCodes.conflict;
    case 408:
    case 429:
    case 503:
      return exitCodes.unavailable;
    default:
      return exitCodes.failure;
  }
}
