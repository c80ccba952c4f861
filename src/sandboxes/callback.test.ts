import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { brandId, type SandboxId, type TenantId, uuidv7 } from "../core/ids.ts";
import { instant } from "../core/time.ts";
import { callbackToken, verifyCallbackToken } from "./callback.ts";

const identity = {
  tenant: brandId<TenantId>("acme"),
  sandbox: brandId<SandboxId>(uuidv7()),
  deadline: instant(1_795_974_924_043_001n),
};
const keys = [
  { id: "k2", key: randomBytes(32) },
  { id: "k1", key: randomBytes(32) },
];

test("E17: a sandbox's token is derived: the same again for the same object, and it names its sandbox", () => {
  assert.equal(callbackToken(keys, identity), callbackToken(keys, identity));
  assert.deepEqual(verifyCallbackToken(keys, callbackToken(keys, identity)), identity);
});

test("E17: keys rotate: an older key still verifies, a removed one does not", () => {
  const old = callbackToken(keys.slice(1), identity);
  assert.deepEqual(verifyCallbackToken(keys, old), identity);
  assert.equal(verifyCallbackToken(keys.slice(0, 1), old), undefined);
});

test("E17: whatever is altered in a token makes it worthless", () => {
  const token = callbackToken(keys, identity);
  for (let at = 0; at < token.length; at += 1) {
    const other = token[at] === "A" ? "B" : "A";
    const forged = token.slice(0, at) + other + token.slice(at + 1);
    // The last character of base64url carries two bits that mean nothing.
    if (at === token.length - 1) continue;
    assert.equal(verifyCallbackToken(keys, forged), undefined, `altered at ${at}`);
  }
  const theirs = callbackToken(keys, { ...identity, tenant: brandId<TenantId>("other") });
  assert.equal(verifyCallbackToken(keys, token.replace(".acme.", ".other.")), undefined);
  assert.notEqual(theirs, token);
  for (const nonsense of ["", "hfs_", "Bearer", "hfs_k1.acme", `${token}x`, `x${token}`]) {
    assert.equal(verifyCallbackToken(keys, nonsense), undefined, nonsense);
  }
});
