import { brandId, type PrincipalId, type TenantId } from "../core/ids.ts";
import { type Database, runAlone } from "../core/postgres/transition.ts";
import { authenticate as authenticateRow } from "./principal.sql.ts";
import { type Authenticator, bearerOf, type Principal, tokenHashOf, unauthenticated } from "./principal.ts";

/** A request that an older deployment has let in is refused before it is known whose it is. */
type KnownDeployment = Pick<Database, "pools" | "deploymentEpoch">;

/** Whoever an Authorization header proves, by the first of these that knows its kind; or `unauthenticated`. */
export async function authenticate(
  authenticators: readonly Authenticator[],
  authorization: string | undefined,
): Promise<Principal> {
  const bearer = bearerOf(authorization);
  if (bearer === null) throw unauthenticated();
  for (const by of authenticators) {
    const principal = await by.authenticate(bearer);
    if (principal !== null) return principal;
  }
  throw unauthenticated();
}

/** Whether the credential behind open streams is still good. */
export async function isLive(
  authenticators: readonly Authenticator[],
  principal: Principal,
): Promise<boolean> {
  return (await authenticators.find(({ kind }) => kind === principal.kind)?.isLive(principal)) ?? false;
}

/** Our own tokens. Nothing is cached: a revocation counts at once. */
export function tokenAuthenticator(db: KnownDeployment): Authenticator {
  return {
    kind: "token",
    async authenticate(bearer) {
      const hash = tokenHashOf(bearer);
      if (hash === null) return null;
      const principal = await principalOf(db, hash);
      if (principal === null) throw unauthenticated();
      return principal;
    },
    isLive: async ({ credential }) => (await principalOf(db, Buffer.from(credential, "hex"))) !== null,
  };
}

/** Null when no live token has this digest. */
export async function principalOf(db: KnownDeployment, tokenHash: Buffer): Promise<Principal | null> {
  const row = await runAlone(db, "gateway", authenticateRow, {
    hash: tokenHash,
    deployment_epoch: db.deploymentEpoch,
  });
  if (row === undefined) return null;
  return {
    kind: "token",
    tenant: brandId<TenantId>(row.tenant_id),
    id: brandId<PrincipalId>(row.principal_id),
    name: row.principal_name,
    scopes: new Set(row.scopes),
    expiresAt: row.expires_at,
    credential: tokenHash.toString("hex"),
  };
}
