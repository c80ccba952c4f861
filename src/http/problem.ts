import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import type { ErrorCode } from "../wire/errors.ts";
import type { ProblemDocument } from "../wire/problem.ts";

export const problemType = "application/problem+json";

/** RFC 9457, with `code` from the catalogue, `errors` that point into the request, and the request id. */
export function problemOf(error: HoldfastError, requestId: string): ProblemDocument {
  const { status, title, next } = error.entry;
  return {
    ...error.extra,
    type: `urn:holdfast:error:${error.code}`,
    title,
    status,
    // What went wrong inside is for the log.
    detail: error.code === "internal" ? next : error.detail,
    code: error.code,
    ...(error.fields.length === 0 ? {} : { errors: [...error.fields] }),
    request_id: requestId,
  };
}

/** The framework's own errors, by its stable codes. Anything unknown is a fault of ours. */
const byFrameworkCode: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: [
    "payload_too_large",
    "the body is larger than this server accepts: 256 KiB on the API, 1 MiB on the callback",
  ],
  FST_ERR_CTP_INVALID_MEDIA_TYPE: [
    "unsupported_media_type",
    "this media type is not one that the route takes",
  ],
  FST_ERR_CTP_EMPTY_TYPE: ["unsupported_media_type", "a body needs its media type"],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: ["invalid_request", "the body has another length than Content-Length"],
  FST_ERR_CTP_INVALID_TYPE: ["unsupported_media_type", "this media type is not one that the route takes"],
  FST_ERR_BAD_URL: ["invalid_request", "the path is not valid"],
  FST_ERR_MAX_PARAM_LENGTH: ["not_found", "a segment of the path is too long for any id"],
};

export function asHoldfastError(error: unknown): HoldfastError {
  if (isHoldfastError(error)) return error;
  const code = errorCode(error);
  const known = code === undefined ? undefined : byFrameworkCode[code];
  if (known !== undefined) return new HoldfastError(known[0], known[1], { cause: error });
  if (code === "ECONNRESET" || code === "ABORT_ERR") {
    return new HoldfastError("invalid_request", "the request was given up", { cause: error });
  }
  return new HoldfastError("internal", "an unexpected error", { cause: error });
}

function errorCode(error: unknown): string | undefined {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : undefined;
}

/** What Node's parser reports before there is a request. */
export function clientFault(error: { readonly code?: string }): HoldfastError {
  switch (error.code) {
    case "HPE_HEADER_OVERFLOW":
      return new HoldfastError("headers_too_large", "the headers are larger than this server accepts");
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new HoldfastError("request_timeout", "the request did not arrive in time");
    case undefined:
    default:
      return new HoldfastError("invalid_request", "this is not valid HTTP");
  }
}

/** A whole response for a socket that never became a request. */
export function rawProblem(error: HoldfastError, requestId: string, reason: string): string {
  const body = JSON.stringify(problemOf(error, requestId));
  return [
    `HTTP/1.1 ${error.entry.status} ${reason}`,
    `Content-Type: ${problemType}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    `X-Request-Id: ${requestId}`,
    "Cache-Control: no-store",
    "Connection: close",
    "",
    body,
  ].join("\r\n");
}
