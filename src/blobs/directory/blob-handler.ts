import type { IncomingMessage, ServerResponse } from "node:http";
import { pipeline } from "node:stream/promises";
import { BlobRefusal } from "../../core/blob.port.ts";
import { HoldfastError } from "../../core/errors.ts";
import { type Instant, toMilliseconds } from "../../core/time.ts";
import { blobPath, type Grant, readGrant, type SigningKeys } from "./capability.ts";
import type { ObjectFiles } from "./object-files.ts";

/** What is read, at most, of a body that was refused, so that its sender gets to see the answer. */
const drainBytesMax = 1024 * 1024;
const timerMsMax = 2 ** 31 - 1;

export interface BlobHandlerOptions {
  readonly files: ObjectFiles;
  readonly keys: SigningKeys;
  readonly clock: () => Instant;
  /** Told about faults of the disk, which the client sees as 503. */
  readonly onFault: (error: unknown) => void;
}

/** Serves `/blobs/…`. Resolves to false, with nothing written, when the path is not one of its own. */
export type BlobHandler = (request: IncomingMessage, response: ServerResponse) => Promise<boolean>;

/**
 * What an S3 presigned URL would do, over a directory. A transfer has to be complete before its capability
 * expires: one that is not is cut off, and an upload then leaves nothing (E18).
 */
export function blobHandler(options: BlobHandlerOptions): BlobHandler {
  return async (request, response) => {
    if (!(request.url ?? "").startsWith(blobPath)) return false;
    try {
      const grant = admit(request, options);
      const signal = endOf(grant, options.clock(), response);
      if (grant.method === "PUT") await receive(grant, request, response, options, signal);
      else await send(grant, response, options, signal);
    } catch (error) {
      const problem = problemOf(error);
      if (problem.code === "unavailable" && !response.destroyed) options.onFault(error);
      answer(problem, request, response);
    }
    return true;
  };
}

/** Pure but for the clock: who holds this URL, may they do this, with these headers, now? */
function admit(request: IncomingMessage, { keys, clock }: BlobHandlerOptions): Grant {
  const grant = readGrant(request.url ?? "", keys);
  if (grant === undefined)
    throw new HoldfastError("capability_invalid", "This URL was not signed by this store.");
  if (request.method !== grant.method) {
    throw new HoldfastError("method_not_allowed", `This capability is for ${grant.method} only.`, {
      extra: { allow: grant.method },
    });
  }
  if (clock() >= grant.expires) throw new HoldfastError("capability_expired", "This capability has expired.");
  if (grant.method === "PUT") admitLength(grant, request.headers["content-length"]);
  return grant;
}

/** A wrong length is refused by its header, before a byte of the body is read. */
function admitLength(grant: Grant, header: string | undefined): void {
  if (header === undefined) {
    throw new HoldfastError("invalid_request", `Send Content-Length: ${grant.bytes}.`);
  }
  const length = BigInt(header);
  if (length > grant.bytes) {
    throw new HoldfastError("payload_too_large", `This capability is for exactly ${grant.bytes} bytes.`);
  }
  if (length < grant.bytes) {
    throw new HoldfastError("invalid_request", `This capability is for exactly ${grant.bytes} bytes.`);
  }
}

async function receive(
  grant: Grant,
  request: IncomingMessage,
  response: ServerResponse,
  { files }: BlobHandlerOptions,
  signal: AbortSignal,
): Promise<void> {
  await files.put(grant.key, grant, request, signal);
  response.writeHead(204, { "repr-digest": reprDigest(grant) }).end();
}

async function send(
  grant: Grant,
  response: ServerResponse,
  { files }: BlobHandlerOptions,
  signal: AbortSignal,
): Promise<void> {
  const body = await files.read(grant.key, grant, signal);
  response.writeHead(200, {
    "content-type": "application/octet-stream",
    "content-length": String(grant.bytes),
    "repr-digest": reprDigest(grant),
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
  });
  // The last bytes are held back until the digest is known: a damaged object never arrives complete.
  await pipeline(body, response);
}

/** RFC 9530. */
function reprDigest(grant: Grant): string {
  return `sha-256=:${Buffer.from(grant.sha256, "hex").toString("base64")}:`;
}

/** Aborts when the capability expires. */
function endOf(grant: Grant, now: Instant, response: ServerResponse): AbortSignal {
  const end = new AbortController();
  const expire = () =>
    end.abort(new HoldfastError("capability_expired", "The capability expired during the transfer."));
  const timer = setTimeout(expire, Math.min(toMilliseconds(grant.expires - now), timerMsMax));
  response.once("close", () => clearTimeout(timer));
  return end.signal;
}

function problemOf(error: unknown): HoldfastError {
  if (error instanceof HoldfastError) return error;
  // Streams that a signal ends fail with an AbortError, whose cause is the reason that the signal was given.
  if (error instanceof Error && error.cause instanceof HoldfastError) return error.cause;
  if (error instanceof BlobRefusal) {
    switch (error.reason) {
      case "mismatch":
        return new HoldfastError("content_mismatch", `Nothing was transferred: ${error.message}.`);
      case "absent":
        return new HoldfastError("not_found", "There is no such object.");
      case "expired":
        return new HoldfastError("capability_expired", "This capability has expired.");
      case "forbidden":
      case "invalid_key":
        return new HoldfastError("capability_invalid", "This capability names no object of this store.");
    }
  }
  return new HoldfastError("unavailable", "The store cannot be used now.", { cause: error });
}

function answer(problem: HoldfastError, request: IncomingMessage, response: ServerResponse): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const { status, title, next, retryable } = problem.entry;
  const document = { type: "about:blank", title, status, detail: problem.detail, code: problem.code };
  const body = Buffer.from(JSON.stringify({ ...document, retryable, next }));
  const { allow } = problem.extra;
  response.writeHead(status, {
    "content-type": "application/problem+json",
    "content-length": body.length,
    "cache-control": "no-store",
    ...(typeof allow === "string" ? { allow } : {}),
    ...(status === 503 ? { "retry-after": "1" } : {}),
  });
  response.end(body);
  drain(request);
}

function drain(request: IncomingMessage): void {
  let drained = 0;
  request.on("data", (chunk: Buffer) => {
    drained += chunk.length;
    if (drained > drainBytesMax) request.destroy();
  });
}
