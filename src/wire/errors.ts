/**
 * The one catalogue of error codes. Each code has one HTTP status, says whether the same request can be sent
 * again as it is, and tells the reader what to do next. `docs/reference/errors.md` documents each of them,
 * and a test holds the two to each other in both directions.
 */
export interface ErrorEntry {
  readonly status: number;
  readonly retryable: boolean;
  readonly title: string;
  readonly next: string;
}

const entry = (status: number, title: string, next: string, retryable = false): ErrorEntry => ({
  status,
  retryable,
  title,
  next,
});

export const errorCatalogue = {
  // Requests
  invalid_request: entry(400, "The request is not valid", "Correct the fields that `errors` points at."),
  invalid_json: entry(
    400,
    "The body is not valid JSON",
    "Send UTF-8 JSON without duplicate keys; `detail` names the place.",
  ),
  invalid_cursor: entry(
    400,
    "The cursor or page token is not valid",
    "Use a token exactly as this server gave it, with the same filter.",
  ),
  invalid_idempotency_key: entry(
    400,
    "The Idempotency-Key is not valid",
    "Send 1 to 255 visible ASCII characters.",
  ),
  unauthenticated: entry(
    401,
    "Credentials are missing or not valid",
    "Send `Authorization: Bearer TOKEN` with a token that is neither expired nor revoked.",
  ),
  forbidden: entry(
    403,
    "The token's scopes do not allow this",
    "Use a token with the scope that `detail` names.",
  ),
  host_not_allowed: entry(
    403,
    "The Host header is not one of this server's",
    "Reach the server by the address that it printed.",
  ),
  not_found: entry(
    404,
    "There is no such resource",
    "Check the id, and that the token belongs to the right tenant.",
  ),
  method_not_allowed: entry(405, "The method is not allowed here", "Use a method that `Allow` lists."),
  request_timeout: entry(
    408,
    "The request took too long to arrive",
    "Send the body faster, or a smaller one.",
    true,
  ),
  conflict: entry(
    409,
    "The resource's state does not allow this",
    "Read the resource again; `detail` says which state it is in.",
  ),
  idempotency_conflict: entry(
    409,
    "The Idempotency-Key was used for another request",
    "Use a new key for a new request.",
  ),
  plan_conflict: entry(
    409,
    "The attempt exists with another plan",
    "An attempt's plan never changes: start another job.",
  ),
  gone: entry(410, "The resource was removed when its retention ended", "Run the job again to make it anew."),
  cursor_expired: entry(
    410,
    "The cursor is older than what is kept",
    "List the resources again and watch from `cursor`.",
  ),
  precondition_failed: entry(
    412,
    "The resource has changed since it was read",
    "Read it again, decide again, and send the new ETag.",
  ),
  payload_too_large: entry(413, "The body is too large", "Send at most what `detail` names."),
  unsupported_media_type: entry(415, "The media type is not supported", "Send `application/json`."),
  precondition_required: entry(
    428,
    "The request needs If-Match",
    "Read the resource and send its ETag in `If-Match`.",
  ),
  too_many_requests: entry(429, "Too many requests", "Wait for `Retry-After` seconds.", true),
  queue_full: entry(
    429,
    "The waiting queue is full",
    "Wait for `Retry-After` seconds; jobs leave the queue when slots come free.",
    true,
  ),
  too_many_streams: entry(
    429,
    "Too many streams are open",
    "Close one, or wait for `Retry-After` seconds.",
    true,
  ),
  headers_too_large: entry(431, "The headers are too large", "Send fewer or shorter headers."),
  internal: entry(
    500,
    "Something failed on the server",
    "Send the request again with the same Idempotency-Key; quote the request id when asking for help.",
    true,
  ),
  unavailable: entry(503, "The server cannot answer now", "Wait for `Retry-After` seconds.", true),
  draining: entry(
    503,
    "Nothing new of this kind is admitted now",
    "Wait for `Retry-After` seconds; `detail` has the operator's reason. What was admitted goes on.",
    true,
  ),

  // Fences and storage rules
  fenced: entry(
    409,
    "The lease expired or was superseded",
    "Stop acting on this resource: another holder has it now.",
  ),
  deployment_fenced: entry(
    503,
    "This process belongs to an older deployment epoch",
    "Stop it and deploy the current release.",
  ),
  tenant_disabled: entry(403, "The tenant is disabled", "Ask an operator."),
  uid_conflict: entry(
    409,
    "The external UID is already recorded",
    "A persisted UID is never replaced; create another sandbox.",
  ),
  sandbox_fenced: entry(
    409,
    "The sandbox may not report any more",
    "It was stopped, superseded or never released: end it.",
  ),
  pins_missing: entry(
    409,
    "The commit pins of some sources are missing",
    "Report a pin for each source before the source phase ends.",
  ),
  attempts_exhausted: entry(409, "The job has had its two attempts", "Submit a new job."),
  work_not_registered: entry(
    409,
    "The version of the work is not registered",
    "Start a worker that has it, or register it, then submit again.",
    true,
  ),
  work_retired: entry(
    409,
    "The version of the work is retired",
    "Submit under a version that is not retired.",
  ),
  deadline_elapsed: entry(
    409,
    "The deadline has passed already",
    "Submit new work with a later deadline; an accepted one is never extended.",
  ),
  admission_closed: entry(
    409,
    "No further attempt of the work is admitted",
    "Inspect it: a proof can still settle what happened. Submit new work to try again.",
  ),
  cancel_requested: entry(
    409,
    "The end of the work was asked for",
    "Stop where it is safe to: what has happened already still counts.",
  ),
  no_slot: entry(409, "No slot is free", "The job stays in the queue; nothing needs doing.", true),

  // Storage capabilities
  capability_invalid: entry(
    403,
    "The capability is not valid",
    "Use the URL and headers exactly as the callback gave them, for that one object and method.",
  ),
  capability_expired: entry(
    403,
    "The capability has expired",
    "Ask the callback for a new one; a transfer has to be complete before its capability expires.",
  ),
  content_mismatch: entry(
    422,
    "The bytes are not the promised ones",
    "Compute length and SHA-256 of the bytes that are really sent, and ask for a capability for these.",
  ),

  // Schema and composition (exit codes of the command line are in docs/reference/errors.md)
  schema_missing: entry(
    503,
    "The database has no Holdfast schema",
    "Run `holdfast schema apply` as the owner.",
  ),
  schema_incompatible: entry(
    503,
    "This binary and the schema do not fit each other",
    "Deploy the release that `detail` names.",
  ),
  schema_drift: entry(
    503,
    "The store is not what this release's migrations make",
    "Use the release's own files; put back what `detail` names as `holdfast schema script` makes it. Development store: `holdfast dev --reset`.",
  ),
  schema_busy: entry(
    503,
    "The schema is locked by somebody else",
    "Apply again when the transaction or apply that `detail` names has ended.",
    true,
  ),
  migration_failed: entry(
    500,
    "A migration failed and left nothing behind",
    "Correct what `detail` names and apply again.",
  ),
  owner_required: entry(
    403,
    "This needs the owner of the schema",
    "Connect as a login that may SET ROLE holdfast_owner; `holdfast schema roles` makes the roles.",
  ),
  processes_alive: entry(
    409,
    "Live processes would be left behind",
    "Stop the processes that `detail` names, wait two minutes if they could not say goodbye, then try again.",
  ),
  installation_mismatch: entry(
    503,
    "The store belongs to another installation",
    "Point HOLDFAST_INSTALLATION and the database at the same installation.",
  ),
  invalid_configuration: entry(500, "The configuration is not valid", "Set the key that `detail` names."),
  postgres_unavailable: entry(
    503,
    "The embedded PostgreSQL cannot run",
    "Do what `detail` says, or use a PostgreSQL of your own.",
  ),
  directory_in_use: entry(
    409,
    "Another process uses this directory",
    "Stop the process that `detail` names, or choose another directory.",
  ),
  port_taken: entry(500, "The port is taken", "Choose another with --port."),
  unreachable: entry(
    503,
    "The server cannot be reached",
    "Start it with `npm start`, or set HOLDFAST_URL.",
    true,
  ),
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof errorCatalogue;

export function isErrorCode(text: string): text is ErrorCode {
  return Object.hasOwn(errorCatalogue, text);
}
