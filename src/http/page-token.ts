import { Type } from "typebox";
import { canonicalDigest } from "../core/canonical.ts";
import { HoldfastError } from "../core/errors.ts";
import { isUuid } from "../core/ids.ts";
import { type Instant, instant } from "../core/time.ts";

/** Items of a page; more than the server gives at once is the same as that. */
export const PageLimit = Type.String({
  pattern: "^[1-9][0-9]{0,5}$",
  description: "a whole number from 1 to 999999",
});
export const PageToken = Type.String({ minLength: 1, maxLength: 255 });

const pageItemsDefault = 50;

export function pageLimitOf(asked: string | undefined, limits: { readonly pageItems: number }): number {
  return Math.min(Number(asked ?? pageItemsDefault), limits.pageItems);
}

/** Where a page begins: after this one, newest first. */
export interface PagePosition {
  readonly at: Instant;
  readonly id: string;
}

/** Opaque, and bound to the filter: a token of one list is refused by another. */
export function encodePageToken(filter: unknown, position: PagePosition): string {
  return Buffer.from(`1.${binding(filter)}.${position.at}.${position.id}`).toString("base64url");
}

export function decodePageToken(filter: unknown, token: string): PagePosition {
  const text = Buffer.from(token, "base64url").toString("latin1");
  const [, bound, at = "", id = ""] = /^1\.([0-9a-f]{16})\.(\d{1,17})\.([0-9a-f-]{36})$/.exec(text) ?? [];
  if (bound !== binding(filter) || !isUuid(id)) {
    throw new HoldfastError("invalid_cursor", "the page token is not one of this list");
  }
  return { at: instant(BigInt(at)), id };
}

function binding(filter: unknown): string {
  return canonicalDigest(filter).slice(0, 16);
}
