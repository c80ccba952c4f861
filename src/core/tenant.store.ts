import { HoldfastError } from "./errors.ts";
import { brandId, isTenantId, type PrincipalId, type TenantId, uuidv7 } from "./ids.ts";
import { type Database, transition, view } from "./postgres/transition.ts";
import {
  insertPrincipal,
  insertTenant,
  insertToken,
  type ListTokensRow,
  listTokens as listTokenRows,
  readPrincipal,
  readPrincipalByName,
  readToken,
  revokeToken as revokeTokenRow,
  tenantExists,
} from "./tenant.sql.ts";
import { type GrantedScope, hashToken, isGrantedScope, mintToken } from "./tenant.ts";
import { type Instant, instant, type Microseconds, microseconds, seconds } from "./time.ts";

const tokensListedMax = 1000n;
const tokenLifetimeMax = seconds(366 * 86_400);
const principalName = /^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$/;

/** `conflict` when it exists. */
export async function createTenant(db: Database, id: string): Promise<TenantId> {
  if (!isTenantId(id)) {
    throw new HoldfastError("invalid_request", "a tenant is named by 1 to 63 of a-z, 0-9 and inner hyphens");
  }
  await transition(db, { role: "operator", tenant: null, name: "createTenant" }, (tx) =>
    tx.run(insertTenant, { tenant: id }),
  );
  return id;
}

export function isTenant(db: Database, tenant: TenantId): Promise<boolean> {
  return view(db, { role: "operator", tenant: null, name: "isTenant" }, async (tx) => {
    const { known } = await tx.run(tenantExists, { tenant });
    return known;
  });
}

/** `conflict` when the tenant has one of this name. */
export async function createPrincipal(
  db: Database,
  { tenant, name }: { readonly tenant: TenantId; readonly name: string },
): Promise<PrincipalId> {
  if (!principalName.test(name)) {
    throw new HoldfastError("invalid_request", "a principal is named by 1 to 63 of a-z, 0-9 and inner . _ -");
  }
  const principal = brandId<PrincipalId>(uuidv7());
  await transition(db, { role: "operator", tenant, name: "createPrincipal" }, (tx) =>
    tx.run(insertPrincipal, { principal, name }),
  );
  return principal;
}

export function findPrincipal(
  db: Database,
  { tenant, name }: { readonly tenant: TenantId; readonly name: string },
): Promise<PrincipalId | null> {
  return view(db, { role: "operator", tenant, name: "findPrincipal" }, async (tx) => {
    const row = await tx.run(readPrincipalByName, { name });
    return row === undefined ? null : brandId<PrincipalId>(row.principal_id);
  });
}

export interface NewToken {
  readonly id: string;
  /** The only time that it is seen: its digest alone is stored. */
  readonly token: string;
  readonly expiresAt: Instant;
}

export async function createToken(
  db: Database,
  grant: {
    readonly tenant: TenantId;
    readonly principal: PrincipalId;
    readonly scopes: readonly GrantedScope[];
    readonly lifetime: Microseconds;
  },
): Promise<NewToken> {
  if (grant.scopes.length === 0 || !grant.scopes.every(isGrantedScope)) {
    throw new HoldfastError("invalid_request", "a token needs scopes that exist");
  }
  if (grant.lifetime <= 0n || grant.lifetime > tokenLifetimeMax) {
    throw new HoldfastError("invalid_request", "a token lives for some time, at most a year");
  }
  const token = mintToken();
  const id = uuidv7();
  const scope = { role: "operator", tenant: grant.tenant, name: "createToken" } as const;
  const { expires_at } = await transition(db, scope, async (tx) => {
    if ((await tx.run(readPrincipal, { principal: grant.principal })) === undefined) {
      throw new HoldfastError("not_found", "there is no such principal");
    }
    return tx.run(insertToken, {
      token: id,
      principal: grant.principal,
      hash: hashToken(token),
      scopes: [...new Set(grant.scopes)],
      now: tx.now,
      lifetime_us: grant.lifetime,
    });
  });
  return { id, token, expiresAt: expires_at };
}

/**
 * From its commit on no request is let in by it, and within seconds its streams have ended; with `after`, from
 * that much later on. A revocation can be brought forward and never taken back.
 */
export async function revokeToken(
  db: Database,
  {
    tenant,
    token,
    after,
  }: { readonly tenant: TenantId; readonly token: string; readonly after?: Microseconds },
): Promise<void> {
  const revoked = await transition(db, { role: "operator", tenant, name: "revokeToken" }, (tx) =>
    tx.run(revokeTokenRow, { token, at: instant(tx.now + (after ?? 0n)) }),
  );
  if (revoked === undefined) throw new HoldfastError("not_found", "there is no such token");
}

/** Whether it lets somebody in, and will for that long. */
export function isTokenGood(
  db: Database,
  { tenant, token, left }: { readonly tenant: TenantId; readonly token: string; readonly left: Microseconds },
): Promise<boolean> {
  return view(db, { role: "operator", tenant, name: "readToken" }, async (tx) => {
    const row = await tx.run(readToken, { token });
    return row !== undefined && row.revoked_at === null && row.expires_at > tx.now + left;
  });
}

/** A successor with the same principal, scopes and lifetime. The old one stays good for the overlap. */
export async function rotateToken(
  db: Database,
  {
    tenant,
    token,
    overlap,
  }: { readonly tenant: TenantId; readonly token: string; readonly overlap: Microseconds },
): Promise<NewToken> {
  const old = await view(db, { role: "operator", tenant, name: "readToken" }, (tx) =>
    tx.run(readToken, { token }),
  );
  if (old === undefined) throw new HoldfastError("not_found", "there is no such token");
  if (old.revoked_at !== null) throw new HoldfastError("conflict", "the token is revoked already");
  const successor = await createToken(db, {
    tenant,
    principal: brandId<PrincipalId>(old.principal_id),
    scopes: old.scopes.filter(isGrantedScope),
    lifetime: microseconds(old.expires_at - old.created_at),
  });
  await revokeToken(db, { tenant, token, after: overlap });
  return successor;
}

export function listTokens(db: Database, tenant: TenantId): Promise<readonly ListTokensRow[]> {
  return view(db, { role: "operator", tenant, name: "listTokens" }, (tx) =>
    tx.run(listTokenRows, { limit: tokensListedMax }),
  );
}
