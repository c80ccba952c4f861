import { randomFillSync } from "node:crypto";

declare const brand: unique symbol;
/** A string or number that TypeScript keeps apart from others of the same shape. */
export type Branded<T, Name extends string> = T & { readonly [brand]: Name };

export type TenantId = Branded<string, "TenantId">;
export type PrincipalId = Branded<string, "PrincipalId">;
export type JobId = Branded<string, "JobId">;
export type SandboxId = Branded<string, "SandboxId">;
export type CommandId = Branded<string, "CommandId">;
/** One run of one process. A lease names its holder by this, never by host or pid, which are reused. */
export type IncarnationId = Branded<string, "IncarnationId">;

/** Asking the system for random bytes costs more than the rest of an id: they are drawn from a pool. */
const pool = Buffer.alloc(16 * 256);
let drawn = pool.length;

/**
 * A UUID version 7 (RFC 9562): 48 bits of Unix milliseconds, then random bits. Ids made in time order keep
 * the index pages that are written close together. The time in it decides nothing: only the database's
 * clock counts.
 */
export function uuidv7(): string {
  if (drawn === pool.length) {
    randomFillSync(pool);
    drawn = 0;
  }
  const bytes = pool.subarray(drawn, (drawn += 16));
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x70;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = bytes.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

const uuidPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

export function isUuid(text: string): boolean {
  return uuidPattern.test(text);
}

/** Brand a string whose origin is trusted: a database row, or an id that we made. */
export function brandId<Id extends Branded<string, string>>(text: string): Id {
  return text as Id;
}

/** Whether a text can name a tenant: lower-case letters, digits and inner hyphens, at most 63. */
export function isTenantId(text: string): text is TenantId {
  return /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/.test(text);
}
