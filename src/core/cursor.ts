import { createHash } from "node:crypto";
import { canonicalJson } from "./canonical.ts";
import { HoldfastError } from "./errors.ts";
import type { TenantId } from "./ids.ts";

/** What a watcher wants to see. No kinds means all of them. */
export interface ChangeFilter {
  readonly kinds: readonly string[];
  readonly root: string | null;
  /** Those that a resource has after the change; all of these. Changes of what has no labels are left out. */
  readonly labels?: Readonly<Record<string, string>>;
}

/** Where a watcher stands: everything up to `position` has been seen, under this filter, in this store. */
export interface Cursor {
  /** The store's incarnation id, which an operator rotates after a restore. */
  readonly incarnation: string;
  readonly tenant: TenantId;
  readonly filter: ChangeFilter;
  readonly position: bigint;
}

const version = 1;
const incarnationAt = 1;
const positionAt = incarnationAt + 16;
const boundToAt = positionAt + 8;
const length = boundToAt + 16;

/** An opaque text for clients: base64url without padding, always of the same length. */
export function encodeCursor(cursor: Cursor): string {
  const bytes = Buffer.alloc(length);
  bytes[0] = version;
  incarnationBytes(cursor.incarnation).copy(bytes, incarnationAt);
  bytes.writeBigUInt64BE(cursor.position, positionAt);
  boundTo(cursor).copy(bytes, boundToAt);
  return bytes.toString("base64url");
}

/**
 * The position in a cursor that a client gave back (G7). `invalid_cursor` when it is not one of this tenant and
 * filter; `cursor_expired`, with a fresh `cursor` at the head, when the store was restored since or changes
 * after it may have been removed already. It is no secret and no proof of rights: those are checked by tenant.
 */
export function decodeCursor(
  text: string,
  here: Omit<Cursor, "position"> & { readonly floor: bigint; readonly head: bigint },
): bigint {
  const bytes = Buffer.from(text, "base64url");
  if (bytes.length !== length || bytes[0] !== version || bytes.toString("base64url") !== text) {
    throw new HoldfastError("invalid_cursor", "the cursor is not one that this server gave");
  }
  if (!bytes.subarray(boundToAt).equals(boundTo(here))) {
    throw new HoldfastError("invalid_cursor", "the cursor belongs to another filter");
  }
  const position = bytes.readBigUInt64BE(positionAt);
  const expired = (detail: string) =>
    new HoldfastError("cursor_expired", detail, {
      extra: { cursor: encodeCursor({ ...here, position: here.head }) },
    });
  if (!bytes.subarray(incarnationAt, positionAt).equals(incarnationBytes(here.incarnation))) {
    throw expired("the store was restored since the cursor was given");
  }
  if (position < here.floor) throw expired("changes after the cursor have been removed");
  if (position > here.head) throw new HoldfastError("invalid_cursor", "the cursor is ahead of the store");
  return position;
}

export function hasLabels(
  filter: ChangeFilter,
): filter is ChangeFilter & Required<Pick<ChangeFilter, "labels">> {
  return filter.labels !== undefined && Object.keys(filter.labels).length > 0;
}

function incarnationBytes(id: string): Buffer {
  return Buffer.from(id.replaceAll("-", ""), "hex");
}

function boundTo({ tenant, filter }: Pick<Cursor, "tenant" | "filter">): Buffer {
  const kinds = [...new Set(filter.kinds)].sort();
  return createHash("sha256")
    .update(canonicalJson([tenant, kinds, filter.root, ...(hasLabels(filter) ? [filter.labels] : [])]))
    .digest()
    .subarray(0, 16);
}
