import { createHmac, timingSafeEqual } from "node:crypto";
import { brandId, isTenantId, isUuid, type SandboxId, type TenantId } from "../core/ids.ts";
import { type Instant, instant } from "../core/time.ts";

/** Who is calling back: proven by the token alone, before anything is read from the database. */
export interface SandboxIdentity {
  readonly tenant: TenantId;
  readonly sandbox: SandboxId;
  /** The token ends with the sandbox's deadline. */
  readonly deadline: Instant;
}

/** Rotating: the first signs, all of them verify. Each at least 32 bytes. */
export type CallbackKeys = readonly { readonly id: string; readonly key: Buffer }[];

/**
 * A sandbox's bearer token (E17), derived and stored nowhere: making the same object again gives the same
 * token. `hfs_` then key id, tenant, sandbox, deadline in microseconds, and an HMAC-SHA256 over all of them.
 */
export function callbackToken(keys: CallbackKeys, identity: SandboxIdentity): string {
  const [first] = keys;
  if (first === undefined) throw new Error("there is no callback key");
  const claims = [first.id, identity.tenant, identity.sandbox, identity.deadline].join(".");
  return `hfs_${claims}.${sign(first.key, claims)}`;
}

/** Undefined when it isn't one of ours, was altered, or its key was rotated out. The deadline is checked by the database. */
export function verifyCallbackToken(keys: CallbackKeys, token: string): SandboxIdentity | undefined {
  const match = /^hfs_(([^.]{1,63})\.([^.]{1,63})\.([^.]{36})\.(\d{1,18}))\.([A-Za-z0-9_-]{43})$/.exec(token);
  const [, claims = "", id = "", tenant = "", sandbox = "", deadline = "", mac = ""] = match ?? [];
  const key = keys.find((candidate) => candidate.id === id)?.key;
  if (key === undefined || !isTenantId(tenant) || !isUuid(sandbox)) return undefined;
  if (!timingSafeEqual(Buffer.from(mac), Buffer.from(sign(key, claims)))) return undefined;
  return { tenant, sandbox: brandId<SandboxId>(sandbox), deadline: instant(BigInt(deadline)) };
}

function sign(key: Buffer, claims: string): string {
  return createHmac("sha256", key).update(`holdfast.callback.v1\n${claims}`).digest("base64url");
}
