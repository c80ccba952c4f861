import { type Config, required } from "../config.ts";
import { openEgress } from "../core/egress/egress.ts";
import type { Database } from "../core/postgres/transition.ts";
import { oidcAuthenticator } from "../http/oidc.ts";
import type { Authenticator } from "../http/principal.ts";

/** Who else than our own tokens says who somebody is. */
export async function openAuthenticators(
  config: Config,
  db: Pick<Database, "pools" | "deploymentEpoch">,
): Promise<readonly Authenticator[]> {
  const issuer = config.oidcIssuer;
  if (issuer === null) return [];
  const settings = {
    issuer,
    audience: required(config, "oidcAudience"),
    jwksUrl: config.oidcJwksUrl,
    tenantClaim: config.oidcTenantClaim,
    scopesClaim: config.oidcScopesClaim,
  };
  return [await oidcAuthenticator(db, settings, openEgress({ allowed: config.egressAllow ?? [] }))];
}
