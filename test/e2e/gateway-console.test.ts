import assert from "node:assert/strict";
import { after, test } from "node:test";
import { revokeToken } from "../../src/core/tenant.store.ts";
import { consoleFiles } from "../../src/main/console.ts";
import { bundleConsole, compressedBytes, consoleBytesMax } from "../../src/main/console-bundle.ts";
import { openBench, submission } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";

const bench = await openBench({ after }, { console: consoleFiles });
const { a } = bench;
const get = (path: string, headers: Record<string, string> = {}) =>
  fetch(bench.url(path), { headers, redirect: "manual" });

interface SignedIn {
  readonly key: string;
  readonly cookie: string;
  readonly setCookie: string;
}

async function signIn(token: string, headers: Record<string, string> = {}): Promise<SignedIn> {
  const response = await fetch(bench.url("/console/session"), {
    method: "POST",
    headers: { authorization: `Bearer ${token}`, ...headers },
  });
  assert.equal(response.status, 200);
  const { key } = (await response.json()) as { readonly key: string };
  const setCookie = response.headers.get("set-cookie") ?? "";
  return { key, setCookie, cookie: setCookie.split(";", 1)[0] ?? "" };
}

const shown = ({ key, cookie }: SignedIn) => ({ cookie, "x-holdfast-console": key });
/** `fetch` sets these by itself and refuses to be told: a plain request has whatever it is given. */
const asBrowser = (site: string, origin: string) => ({ "sec-fetch-site": site, origin });

test("the console is one page with nothing inline, from here alone, in nobody's frame", async () => {
  const page = await get("/console");
  assert.equal(page.status, 200);
  const text = await page.text();
  const policy = page.headers.get("content-security-policy") ?? "";
  for (const part of [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "require-trusted-types-for 'script'",
  ]) {
    assert.ok(policy.split("; ").includes(part), part);
  }
  assert.ok(!policy.includes("unsafe") && !policy.includes("http"));
  assert.equal(page.headers.get("x-content-type-options"), "nosniff");
  assert.equal(page.headers.get("cache-control"), "no-cache");
  assert.doesNotMatch(text, /<script(?![^>]*src=)|<style|style=|onerror|https?:/);
  const again = await get("/console/jobs/whatever", { "if-none-match": page.headers.get("etag") ?? "" });
  assert.equal(again.status, 304);
  assert.equal((await get("/")).headers.get("location"), "/console");
});

test("its files are kept for ever, and their names change with them", async () => {
  const text = await (await get("/console")).text();
  const paths = [...text.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path]) => path ?? "");
  assert.equal(paths.length, 3);
  for (const path of paths) {
    assert.match(path, /^\/console\/assets\/[a-z]+-[A-Za-z0-9]{8}\.(js|css|svg)$/);
    const file = await get(path);
    assert.equal(file.status, 200);
    assert.equal(file.headers.get("cache-control"), "public, max-age=31536000, immutable");
    assert.equal(file.headers.get("content-encoding"), "gzip");
    assert.match(file.headers.get("content-type") ?? "", /^(text\/javascript|text\/css|image\/svg\+xml)/);
  }
  assert.equal((await get("/console/assets/other.js")).status, 404);
  assert.equal((await get("/console/assets/..%2f..%2fpackage.json")).status, 404);
});

test("all of it together is smaller than its bound", async (t) => {
  const bytes = compressedBytes(await bundleConsole());
  t.diagnostic(`console: ${bytes} bytes compressed, of ${consoleBytesMax} at most`);
  assert.ok(bytes <= consoleBytesMax);
});

test("a sign-in is a cookie that scripts can't read and a key: either alone opens nothing", async () => {
  const signed = await signIn(a.token);
  assert.match(signed.setCookie, /; Path=\/; Max-Age=\d+; HttpOnly; SameSite=Strict$/);
  assert.ok(!signed.setCookie.includes(a.token) && !signed.setCookie.includes(signed.key));
  assert.equal((await get("/v1/jobs", shown(signed))).status, 200);
  assert.equal((await get("/v1/jobs", { cookie: signed.cookie })).status, 401);
  assert.equal((await get("/v1/jobs", { "x-holdfast-console": signed.key })).status, 401);
  const other = await signIn(a.token);
  assert.equal((await get("/v1/jobs", shown({ ...signed, key: other.key }))).status, 401);
  assert.equal(
    (await get("/v1/jobs", shown({ ...signed, cookie: signed.cookie.replace(/=./, "=!") }))).status,
    401,
  );
  const known = await get("/console/session", shown(signed));
  const { tenant, scopes } = (await known.json()) as { readonly tenant: string; readonly scopes: string[] };
  assert.deepEqual([tenant, scopes], [tenantA, ["*"]]);
  assert.match(
    (await signIn(a.token, { origin: bench.url("").replace("http:", "https:") })).setCookie,
    /; Secure$/,
  );
});

test("it ends with its token, and has its scopes", async () => {
  const caller = await bench.caller(tenantA, ["jobs:read"]);
  const signed = await signIn(caller.token);
  const submit = () =>
    fetch(bench.url("/v1/jobs"), {
      method: "POST",
      headers: { ...shown(signed), "content-type": "application/json" },
      body: JSON.stringify(submission()),
    });
  assert.equal((await submit()).status, 403);
  assert.equal((await get("/v1/jobs", shown(signed))).status, 200);
  await revokeToken(bench.kernel.db, { tenant: tenantA, token: caller.tokenId });
  assert.equal((await get("/v1/jobs", shown(signed))).status, 401);
  const refused = await fetch(bench.url("/console/session"), {
    method: "POST",
    headers: { authorization: `Bearer ${caller.token}` },
  });
  assert.equal(refused.status, 401);
});

test("a page of another site can do nothing with it", async () => {
  const signed = await signIn(a.token);
  const from = async (site: string, origin: string) =>
    (await get("/v1/jobs", { ...shown(signed), ...asBrowser(site, origin) })).status;
  const own = bench.url("").replace(/\/$/, "");
  assert.equal(await from("same-origin", own), 200);
  assert.equal(await from("cross-site", own), 403);
  assert.equal(await from("same-site", "http://127.0.0.1:1"), 403);
  assert.equal(await from("same-origin", "https://evil.example"), 403);
  assert.equal(await from("same-origin", "null"), 403);
  const stolen = await fetch(bench.url("/console/session"), {
    method: "POST",
    headers: { authorization: `Bearer ${a.token}`, ...asBrowser("cross-site", "https://evil.example") },
  });
  assert.equal(stolen.status, 403);
});

test("leaving takes the cookie away", async () => {
  const response = await fetch(bench.url("/console/session"), { method: "DELETE" });
  assert.equal(response.status, 204);
  assert.match(response.headers.get("set-cookie") ?? "", /=; Path=\/; Max-Age=0; HttpOnly; SameSite=Strict$/);
});
