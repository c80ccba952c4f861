import { createHash } from "node:crypto";
import type { JWTPayload, JWTVerifyGetKey } from "jose";
import type { Egress } from "../core/egress/egress.ts";
import { HoldfastError } from "../core/errors.ts";
import { brandId, isTenantId, type PrincipalId, uuidv7 } from "../core/ids.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { type Database, runAlone } from "../core/postgres/transition.ts";
import { isGrantedScope } from "../core/tenant.ts";
import { instant } from "../core/time.ts";
import { admitSubject } from "./principal.sql.ts";
import { type Authenticator, type Principal, unauthenticated } from "./principal.ts";

export interface OidcSettings {
  readonly issuer: string;
  /** The token has to be for us. */
  readonly audience: string;
  /** Null: where the issuer's discovery document says. */
  readonly jwksUrl: string | null;
  /** The claim that names the tenant. */
  readonly tenantClaim: string;
  /** The claim with the scopes: words in a text, or a list. */
  readonly scopesClaim: string;
}

/** Signatures alone: with a shared secret, or none, whoever checks a token could make it. */
const algorithms = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"];
const clockToleranceSeconds = 5;
const fetchMs = 5_000;
const documentBytesMax = 262_144;
const keysAgeMs = 600_000;
/** An unknown key, or an issuer that doesn't answer, makes us ask no more often than this. */
const askAgainMs = 30_000;
const failedAgainMs = 5_000;
const compactToken = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;

/** Bearer tokens of an OpenID Connect issuer: JSON Web Tokens that are checked here, with the issuer's keys. */
export async function oidcAuthenticator(
  db: Pick<Database, "pools" | "deploymentEpoch">,
  settings: OidcSettings,
  egress: Egress,
): Promise<Authenticator> {
  const jose = await import("jose");
  const keys = await issuerKeys(settings, egress);

  async function verify(bearer: string): Promise<JWTPayload> {
    try {
      const { payload } = await jose.jwtVerify(bearer, keys, {
        issuer: settings.issuer,
        audience: settings.audience,
        algorithms,
        clockTolerance: clockToleranceSeconds,
        requiredClaims: ["exp", "sub", settings.tenantClaim],
      });
      return payload;
    } catch (error) {
      if (error instanceof jose.errors.JOSEError && error.code !== "ERR_JWKS_TIMEOUT")
        throw unauthenticated();
      throw new HoldfastError("unavailable", "the issuer's keys can't be read", {
        cause: error,
        retryAfterSeconds: failedAgainMs / 1000,
      });
    }
  }

  const admit = (tenant: string, name: string) =>
    runAlone(db, "gateway", admitSubject, {
      tenant,
      name,
      new_principal: uuidv7(),
      deployment_epoch: db.deploymentEpoch,
    });

  return {
    kind: "oidc",
    async authenticate(bearer) {
      if (!compactToken.test(bearer)) return null;
      const payload = await verify(bearer);
      const { sub, exp, [settings.tenantClaim]: tenant, [settings.scopesClaim]: scopes } = payload;
      if (sub === undefined || exp === undefined) throw unauthenticated();
      if (typeof tenant !== "string" || !isTenantId(tenant)) throw unauthenticated();
      const row = await admit(tenant, principalName(settings.issuer, sub));
      if (row === undefined) throw unauthenticated();
      const principal: Principal = {
        kind: "oidc",
        tenant,
        id: brandId<PrincipalId>(row.principal_id),
        name: row.principal_name,
        scopes: scopesOf(scopes),
        expiresAt: instant(BigInt(Math.floor(exp)) * 1_000_000n),
        credential: createHash("sha256").update(bearer).digest("hex"),
      };
      return principal;
    },
    async isLive({ tenant, name, expiresAt }) {
      // The issuer's clock counts here, as it did when the token was checked.
      if (BigInt(Date.now() - clockToleranceSeconds * 1000) * 1000n >= expiresAt) return false;
      return (await admit(tenant, name)) !== undefined;
    },
  };
}

/** Nobody else's words make an operator of the installation: that takes a token of our own. */
function scopesOf(claim: unknown): ReadonlySet<string> {
  const words: readonly unknown[] =
    typeof claim === "string" ? claim.split(" ") : Array.isArray(claim) ? claim : [];
  return new Set(
    words
      .filter((word) => typeof word === "string")
      .filter((word) => isGrantedScope(word) && word !== "operator"),
  );
}

/** Readable for the audit, and its own for each issuer and subject. */
export function principalName(issuer: string, subject: string): string {
  const digest = createHash("sha256")
    .update(JSON.stringify([issuer, subject]))
    .digest("hex")
    .slice(0, 24);
  const readable = subject
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .slice(0, 30)
    .replaceAll(/^-|-$/g, "");
  return ["oidc", ...(readable === "" ? [] : [readable]), digest].join("-");
}

/** The issuer's keys: fetched through the guard, kept for a while, and asked for anew when one is unknown. */
async function issuerKeys(settings: OidcSettings, egress: Egress): Promise<JWTVerifyGetKey> {
  const { createRemoteJWKSet, customFetch } = await import("jose");
  let failure: { readonly error: unknown; readonly at: number } | null = null;
  let keysUrl = settings.jwksUrl;
  const fetchKeys = async (): Promise<Response> => {
    keysUrl ??= await discover(settings.issuer, egress);
    const { status, body } = await egress({
      url: keysUrl,
      timeoutMs: fetchMs,
      answerBytesMax: documentBytesMax,
    });
    return new Response(new Uint8Array(body), { status });
  };
  // The URL is where the request goes only when it was configured: the guard is asked either way.
  return createRemoteJWKSet(new URL(settings.jwksUrl ?? settings.issuer), {
    cacheMaxAge: keysAgeMs,
    cooldownDuration: askAgainMs,
    timeoutDuration: 2 * fetchMs,
    [customFetch]: async () => {
      if (failure !== null && monotonicMs() - failure.at < failedAgainMs) throw failure.error;
      try {
        const response = await fetchKeys();
        if (response.status !== 200) throw new Error(`the keys' answer was ${response.status}`);
        failure = null;
        return response;
      } catch (error) {
        failure = { error, at: monotonicMs() };
        throw error;
      }
    },
  });
}

async function discover(issuer: string, egress: Egress): Promise<string> {
  const url = `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
  const { status, body } = await egress({ url, timeoutMs: fetchMs, answerBytesMax: documentBytesMax });
  const found = status === 200 ? (JSON.parse(body.toString()) as Readonly<Record<string, unknown>>) : {};
  if (found["issuer"] !== issuer || typeof found["jwks_uri"] !== "string") {
    throw new Error(`${url} is not the discovery document of this issuer`);
  }
  return found["jwks_uri"];
}
