import { HoldfastError } from "../core/errors.ts";
import { brandId, type PrincipalId, type TenantId } from "../core/ids.ts";
import { type Database, runAlone } from "../core/postgres/transition.ts";
import { authenticate as authenticateRow } from "./principal.sql.ts";
import { bearerHash, type Principal } from "./principal.ts";

/** The principal of an Authorization header, or `unauthenticated`. Nothing is cached: a revocation counts at once. */
export async function authenticate(
  db: Pick<Database, "pools">,
  authorization: string | undefined,
): Promise<Principal> {
  const hash = bearerHash(authorization);
  const principal = hash === null ? null : await principalOf(db, hash);
  if (principal === null) {
    throw new HoldfastError(
      "unauthenticated",
      "a bearer token that is neither expired nor revoked is needed",
    );
  }
  return principal;
}

/** Null when no live token has this digest. */
export async function principalOf(db: Pick<Database, "pools">, tokenHash: Buffer): Promise<Principal | null> {
  const row = await runAlone(db, "gateway", authenticateRow, { hash: tokenHash });
  if (row === undefined) return null;
  return {
    tenant: brandId<TenantId>(row.tenant_id),
    id: brandId<PrincipalId>(row.principal_id),
    name: row.principal_name,
    scopes: new Set(row.scopes),
    expiresAt: row.expires_at,
    tokenHash,
  };
}
