import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openKernel } from "../../test/support/kernel.ts";
import { principalOf } from "../http/principal.store.ts";
import { brandId, type PrincipalId, uuidv7 } from "./ids.ts";
import {
  createPrincipal,
  createTenant,
  createToken,
  findPrincipal,
  listTokens,
  revokeToken,
} from "./tenant.store.ts";
import { hashToken } from "./tenant.ts";
import { seconds } from "./time.ts";

const kernel = await openKernel({ after });
const tenant = await createTenant(kernel.db, "acme");
const principal = await createPrincipal(kernel.db, { tenant, name: "ci" });
const hour = seconds(3600);

test("a token is shown once, stored as its digest, and lets its principal in", async () => {
  const made = await createToken(kernel.db, { tenant, principal, scopes: ["jobs:read"], lifetime: hour });
  assert.match(made.token, /^hft_[A-Za-z0-9_-]{43}$/);
  const found = await principalOf(kernel.db, hashToken(made.token));
  assert.deepEqual(
    [found?.tenant, found?.id, found?.name, [...(found?.scopes ?? [])], found?.expiresAt],
    [tenant, principal, "ci", ["jobs:read"], made.expiresAt],
  );
  const [row] = await kernel.ask<{ text: string }>("select tokens::text as text from holdfast.tokens");
  assert.ok(!row?.text.includes(made.token));
  const [listed] = await listTokens(kernel.db, tenant);
  assert.deepEqual([listed?.token_id, listed?.principal, listed?.revoked_at], [made.id, "ci", null]);
});

test("a revoked token lets nobody in from then on; revoking it again changes nothing", async () => {
  const { id, token } = await createToken(kernel.db, { tenant, principal, scopes: ["*"], lifetime: hour });
  await revokeToken(kernel.db, { tenant, token: id });
  await revokeToken(kernel.db, { tenant, token: id });
  assert.equal(await principalOf(kernel.db, hashToken(token)), null);
  await assert.rejects(revokeToken(kernel.db, { tenant, token: uuidv7() }), { code: "not_found" });
});

test("S9: names are taken within a tenant, and another tenant's principal gets no token", async () => {
  const other = await createTenant(kernel.db, "other");
  await assert.rejects(createTenant(kernel.db, "acme"), { code: "conflict" });
  await assert.rejects(createPrincipal(kernel.db, { tenant, name: "ci" }), { code: "conflict" });
  await createPrincipal(kernel.db, { tenant: other, name: "ci" });
  assert.equal(await findPrincipal(kernel.db, { tenant, name: "ci" }), principal);
  assert.notEqual(await findPrincipal(kernel.db, { tenant: other, name: "ci" }), principal);
  assert.equal(await findPrincipal(kernel.db, { tenant, name: "nobody" }), null);
  const nobody = brandId<PrincipalId>(uuidv7());
  for (const grant of [
    { tenant: other, principal },
    { tenant, principal: nobody },
  ]) {
    await assert.rejects(createToken(kernel.db, { ...grant, scopes: ["*"], lifetime: hour }), {
      code: "not_found",
    });
  }
});

test("names, scopes and lifetimes that can't be are refused", async () => {
  await assert.rejects(createTenant(kernel.db, "Not A Tenant"), { code: "invalid_request" });
  await assert.rejects(createPrincipal(kernel.db, { tenant, name: "Not A Name" }), {
    code: "invalid_request",
  });
  for (const grant of [
    { scopes: [], lifetime: hour },
    { scopes: ["*"] as const, lifetime: seconds(0) },
    { scopes: ["*"] as const, lifetime: seconds(400 * 86_400) },
  ]) {
    await assert.rejects(createToken(kernel.db, { tenant, principal, ...grant }), {
      code: "invalid_request",
    });
  }
});
