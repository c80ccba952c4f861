import { HoldfastError } from "../core/errors.ts";
import type { PrincipalId, TenantId } from "../core/ids.ts";
import { hashToken, isToken, type Scope } from "../core/tenant.ts";
import type { Instant } from "../core/time.ts";

/** Who calls, proven by a token. */
export interface Principal {
  readonly tenant: TenantId;
  readonly id: PrincipalId;
  readonly name: string;
  readonly scopes: ReadonlySet<string>;
  readonly expiresAt: Instant;
  /** The digest by which the token is looked up again while a stream is open. Never logged. */
  readonly tokenHash: Buffer;
}

/** The digest of the token in an Authorization header; null for anything that can't be one. */
export function bearerHash(authorization: string | undefined): Buffer | null {
  const [, token] = /^bearer +(\S+)$/i.exec(authorization ?? "") ?? [];
  return token === undefined || !isToken(token) ? null : hashToken(token);
}

export function requireScope(principal: Principal, scope: Scope): void {
  if (principal.scopes.has(scope) || (scope !== "operator" && principal.scopes.has("*"))) return;
  throw new HoldfastError("forbidden", `the token needs the scope ${scope}`);
}
