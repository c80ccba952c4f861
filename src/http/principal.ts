import { HoldfastError } from "../core/errors.ts";
import type { PrincipalId, TenantId } from "../core/ids.ts";
import { covers, hashToken, isToken, type Scope } from "../core/tenant.ts";
import type { Instant } from "../core/time.ts";

/** Who calls, proven by a credential. */
export interface Principal {
  /** Which authenticator proved it. */
  readonly kind: Authenticator["kind"];
  readonly tenant: TenantId;
  readonly id: PrincipalId;
  readonly name: string;
  readonly scopes: ReadonlySet<string>;
  readonly expiresAt: Instant;
  /** SHA-256 of the credential in hex: streams of the same one are looked at together. Never logged. */
  readonly credential: string;
}

/** Proves credentials of one kind. */
export interface Authenticator {
  readonly kind: "token" | "oidc";
  /** Null for a credential of another kind. Throws `unauthenticated` for one of its own that is not good. */
  authenticate(bearer: string): Promise<Principal | null>;
  /** Whether the credential that proved this principal is still good, for its open streams. */
  isLive(principal: Principal): Promise<boolean>;
}

/** What follows `Bearer`; null for anything that can't be a credential. */
export function bearerOf(authorization: string | undefined): string | null {
  const [, bearer] = /^bearer +([A-Za-z0-9._~+/=-]{1,8192})$/i.exec(authorization ?? "") ?? [];
  return bearer ?? null;
}

export const unauthenticated = () =>
  new HoldfastError("unauthenticated", "a bearer token that is neither expired nor revoked is needed");

/** The digest of one of our own tokens; null for anything else. */
export function tokenHashOf(bearer: string): Buffer | null {
  return isToken(bearer) ? hashToken(bearer) : null;
}

/**
 * On the whole, or on the one resource that the request is about. Decided before anything is looked up, so that
 * the answer says nothing of what exists.
 */
export function requireScope(principal: Principal, scope: Scope, resource: string | null): void {
  if (covers(principal.scopes, scope, resource)) return;
  throw new HoldfastError("forbidden", `the token needs the scope ${scope}`);
}
