import { createHash } from "node:crypto";
import { canonicalJson } from "./canonical.ts";
import { HoldfastError } from "./errors.ts";
import type { PrincipalId } from "./ids.ts";

/** What is asked. Two requests are the same one exactly when all of this is equal as JSON. */
export interface CommandContent {
  /** Names the shape of `body`, so that a later shape with the same bytes is another request. */
  readonly schema: string;
  readonly operation: string;
  readonly target: string;
  readonly body: unknown;
  readonly preconditions: { readonly if_match: string | null; readonly if_none_match: string | null };
}

/** SHA-256 over canonical JSON (RFC 8785). */
export function fingerprintOf(content: CommandContent): Buffer {
  const { schema, operation, target, body, preconditions } = content;
  return createHash("sha256")
    .update(canonicalJson({ schema, operation, target, body: body ?? null, preconditions }))
    .digest();
}

export interface CommandRequest {
  readonly principal: PrincipalId;
  /** Null: a mutation that its caller doesn't intend to repeat. It is recorded all the same. */
  readonly key: string | null;
  readonly operation: string;
  readonly target: string;
  readonly fingerprint: Buffer;
  readonly requestId: string | null;
}

export interface Answer {
  readonly status: number;
  readonly body: unknown;
  readonly etag: string | null;
}

export interface StoredCommand {
  readonly operation: string;
  readonly target: string;
  readonly fingerprint: Buffer;
  readonly response_status: number | null;
  readonly response_body: unknown;
  readonly response_etag: string | null;
}

/** The stored answer to the same request, or `idempotency_conflict` for any other (G3). */
export function decideReplay(request: CommandRequest, stored: StoredCommand): Answer {
  const same =
    stored.operation === request.operation &&
    stored.target === request.target &&
    stored.fingerprint.equals(request.fingerprint);
  if (!same) {
    throw new HoldfastError("idempotency_conflict", "the key was used for another request before");
  }
  if (stored.response_status === null) throw new Error("a committed command has no answer");
  return { status: stored.response_status, body: stored.response_body, etag: stored.response_etag };
}
