import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from "jose";
import { parseNetwork } from "../../src/core/egress/address.ts";
import { openEgress } from "../../src/core/egress/egress.ts";
import { oidcAuthenticator } from "../../src/http/oidc.ts";
import type { CommandView } from "../../src/wire/command.ts";
import type { JobView } from "../../src/wire/job.ts";
import type { ProblemDocument } from "../../src/wire/problem.ts";
import { openEvents, type StreamEvent } from "../support/event-stream.ts";
import { type Caller, openBench, submission } from "../support/gateway.ts";
import { tenantA, tenantB } from "../support/kernel.ts";

/** An issuer with one key, whose documents are counted. */
const pair = await generateKeyPair("ES256");
let keys: object[] = [{ ...(await exportJWK(pair.publicKey)), kid: "one", alg: "ES256", use: "sig" }];
let fetched = 0;
let down = false;
const issuerServer = createServer((request, response) => {
  fetched += 1;
  if (down) response.writeHead(500).end();
  else if (request.url === "/.well-known/openid-configuration") {
    response.end(JSON.stringify({ issuer, jwks_uri: `${issuer}/keys` }));
  } else response.end(JSON.stringify({ keys }));
});
await new Promise<void>((resolve) => issuerServer.listen(0, "127.0.0.1", resolve));
after(() => void issuerServer.close());
const issuer = `http://127.0.0.1:${(issuerServer.address() as AddressInfo).port}`;
const audience = "holdfast";

const bench = await openBench({ after }, { limits: { tokenCheckMs: 100 } });
const settings = { issuer, audience, jwksUrl: null, tenantClaim: "org", scopesClaim: "scope" };
const loopback = openEgress({ allowed: [parseNetwork("127.0.0.1")] });
const open = async (egress = loopback) =>
  bench.start({ authenticators: [await oidcAuthenticator(bench.kernel.db, settings, egress)] });
const gateway = await open();
after(() => gateway.close());

const seconds = () => Math.floor(Date.now() / 1000);
function sign(claims: JWTPayload, key = pair.privateKey, header: object = {}): Promise<string> {
  return new SignJWT({
    sub: "jane@example.com",
    org: tenantA,
    scope: "jobs:read jobs:write commands:read",
    ...claims,
  })
    .setProtectedHeader({ alg: "ES256", kid: "one", ...header })
    .setIssuer(claims.iss ?? issuer)
    .setAudience(claims.aud ?? audience)
    .setExpirationTime(claims.exp ?? seconds() + 3600)
    .sign(key);
}
async function call(token: string, path: string, init: RequestInit = {}, at = gateway.address) {
  const response = await fetch(`${at}${path}`, {
    ...init,
    headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
  });
  return { status: response.status, body: await response.json() };
}

test("G1: a token of the issuer acts in the tenant of its claim, with its scopes, as a principal of its own", async () => {
  const token = await sign({});
  const body = JSON.stringify(submission({ name: "by-jane" }));
  const made = await call(token, "/v1/jobs", { method: "POST", body });
  assert.equal(made.status, 201);
  const { id } = made.body as JobView;
  assert.equal((await bench.call(bench.a, "GET", `/v1/jobs/${id}`)).status, 200);
  assert.equal((await bench.call(bench.b, "GET", `/v1/jobs/${id}`)).status, 404);
  const audit = (await call(token, "/v1/commands?operation=jobs.submit")).body as { items: CommandView[] };
  assert.match(audit.items[0]?.principal ?? "", /^oidc-jane-example-com-[0-9a-f]{24}$/);
  assert.equal((await call(token, "/v1/watch")).status, 403);
  const neighbour = await call(await sign({ org: tenantB }), "/v1/jobs");
  assert.deepEqual((neighbour.body as { items: unknown[] }).items, []);
  const narrowed = await sign({ scope: [`jobs:read:${id}`] });
  assert.equal((await call(narrowed, `/v1/jobs/${id}`)).status, 200);
  assert.equal((await call(narrowed, "/v1/jobs")).status, 403);
});

test("G1: a token that is expired, for others, by others, unsigned or of no tenant is refused", async () => {
  const stranger = await generateKeyPair("ES256");
  const [header, payload] = (await sign({})).split(".");
  const none = Buffer.from(JSON.stringify({ alg: "none" })).toString("base64url");
  const bad: Record<string, string> = {
    expired: await sign({ exp: seconds() - 60 }),
    audience: await sign({ aud: "somebody-else" }),
    issuer: await sign({ iss: "https://elsewhere.example" }),
    forged: await sign({}, stranger.privateKey),
    unsigned: `${none}.${payload}.AAAA`,
    cut: `${header}.${payload}.AAAA`,
    tenant: await sign({ org: "nobody-has-this" }),
    shape: await sign({ org: "NOT A TENANT" }),
    list: await sign({ org: [tenantA] }),
  };
  for (const [why, token] of Object.entries(bad))
    assert.equal((await call(token, "/v1/jobs")).status, 401, why);
  const rows = await bench.kernel.ask("select from holdfast.tenants where tenant_id like 'nobody%'");
  assert.equal(rows.length, 0);
});

test("G1: an issuer makes no operator, and a disabled principal is out", async () => {
  const token = await sign({ sub: "mallory", scope: "operator jobs:read" });
  assert.equal((await call(token, "/v1/jobs")).status, 200);
  await bench.kernel.ask(
    "update holdfast.principals set disabled_at = now() where name like 'oidc-mallory-%'",
  );
  assert.equal((await call(token, "/v1/jobs")).status, 401);
  assert.equal((await call(await sign({ sub: "trent" }), "/v1/jobs")).status, 200);
});

test("G1: an unknown key makes the issuer be asked again, but not by every forger", async () => {
  const before = fetched;
  const next = await generateKeyPair("ES256");
  keys = [...keys, { ...(await exportJWK(next.publicKey)), kid: "two", alg: "ES256", use: "sig" }];
  for (let n = 0; n < 20; n += 1)
    await call(await sign({}, next.privateKey, { kid: `forged-${n}` }), "/v1/jobs");
  assert.ok(fetched - before <= 1, `${fetched - before}`);
});

test("G7: a stream of such a token ends when the token expires", async () => {
  const token = await sign({ scope: "watch:read", exp: seconds() - 3 });
  const stream = await openEvents(`${gateway.address}/v1/watch`, token);
  let last: StreamEvent | undefined;
  for (let event = await stream.next(); event !== null; event = await stream.next()) last = event;
  assert.ok(last);
  assert.deepEqual([last.event, (last.data as ProblemDocument).code], ["error", "unauthenticated"]);
});

test("G1: while the issuer doesn't answer nothing is decided: 503, and our own tokens still work", async () => {
  down = true;
  const other = await open();
  const refused = await call(await sign({}), "/v1/jobs", {}, other.address);
  assert.deepEqual([refused.status, (refused.body as ProblemDocument).code], [503, "unavailable"]);
  const asked = fetched;
  await call(await sign({}), "/v1/jobs", {}, other.address);
  assert.equal(fetched, asked, "and it isn't asked again at once");
  assert.equal((await call((bench.a satisfies Caller).token, "/v1/jobs", {}, other.address)).status, 200);
  await other.close();
});

test("G13: an issuer inside is not asked unless its network is configured", async () => {
  down = false;
  const guarded = await open(openEgress({ allowed: [] }));
  const before = fetched;
  assert.equal((await call(await sign({}), "/v1/jobs", {}, guarded.address)).status, 503);
  assert.equal(fetched, before);
  await guarded.close();
});
