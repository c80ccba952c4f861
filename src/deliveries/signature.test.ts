import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";
import { brandId, type TenantId } from "../core/ids.ts";
import { signedHeaders } from "./signature.ts";
import { signingKeysIn } from "./signing-keys.ts";

const directory = mkdtempSync(join(tmpdir(), "hf-signature-"));
after(() => rmSync(directory, { recursive: true }));

type Verify = (
  headers: Readonly<Record<string, string>>,
  body: Buffer,
  key: Buffer,
  nowSeconds: number,
) => boolean;

/** What receivers are told to do, as it stands in the documentation. */
async function documentedVerify(): Promise<Verify> {
  const page = readFileSync(join(import.meta.dirname, "../../docs/reference/webhooks.md"), "utf8");
  const [, code = ""] = /```js\n([\s\S]*?)```/.exec(page) ?? [];
  const path = join(directory, "verify.mjs");
  writeFileSync(path, code);
  const module = (await import(pathToFileURL(path).href)) as { readonly verify: Verify };
  return module.verify;
}

const delivery = {
  id: "01976b2c-5d3e-7c1a-9f4b-2a1b3c4d5e6f",
  at: 1_780_000_000,
  body: Buffer.from('{"a":"é"}'),
};

test("S8: the documented example verifies a delivery with either of two keys, and nothing else", async () => {
  const verify = await documentedVerify();
  const [current, previous, other] = [randomBytes(32), randomBytes(24), randomBytes(32)];
  const headers = signedHeaders({ ...delivery, keys: [current, previous] });
  const accepted = (
    key: Buffer,
    change: Record<string, string> = {},
    body = delivery.body,
    now = delivery.at,
  ) => verify({ ...headers, ...change }, body, key, now);
  assert.ok(accepted(current) && accepted(previous));
  assert.ok(!accepted(other));
  assert.ok(!accepted(current, {}, Buffer.from('{"a":"e"}')));
  assert.ok(!accepted(current, { "webhook-id": "another" }));
  assert.ok(!accepted(current, { "webhook-timestamp": String(delivery.at + 1) }));
  assert.ok(!accepted(current, {}, delivery.body, delivery.at + 301), "too old");
  assert.ok(!accepted(current, { "webhook-signature": "v2,AAAA" }));
});

test("S8: the signature is the one of Standard Webhooks", () => {
  // A vector of its published libraries.
  const body = Buffer.from('{"test": 2432232314}');
  const key = Buffer.from("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "base64");
  const headers = signedHeaders({ id: "msg_p5jXN8AQM9LWM0D4loKWxJek", at: 1_614_265_330, body, keys: [key] });
  assert.deepEqual(headers, {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  });
});

test("S8: without a key nothing is signed", () => {
  assert.deepEqual(Object.keys(signedHeaders({ ...delivery, keys: [] })), [
    "webhook-id",
    "webhook-timestamp",
  ]);
});

test("S8 S9: signing keys are the tenant's own files, and an error shows none of them", async () => {
  const [acme, other] = [brandId<TenantId>("acme"), brandId<TenantId>("other")];
  const folder = join(directory, "keys");
  mkdirSync(join(folder, "acme", "hook"), { recursive: true });
  const write = (name: string, content: string | Buffer) =>
    writeFileSync(join(folder, "acme", "hook", name), content);
  const raw = randomBytes(32);
  write("plain", "sixteen letters!\n");
  write("encoded", `whsec_${raw.toString("base64")}\n`);
  write("short", "not enough\n");
  write("long", "x".repeat(5_000));
  const keys = signingKeysIn(folder);
  const read = (key: string, tenant = acme, name = "hook") => keys(tenant, [{ name, key }]);
  assert.deepEqual(await read("plain"), [Buffer.from("sixteen letters!")]);
  assert.deepEqual(await read("encoded"), [raw]);
  await assert.rejects(read("short"), { message: "the signing key hook/short is shorter than 16 bytes" });
  await assert.rejects(read("long"), { message: "the signing key hook/long is longer than 4096 bytes" });
  await assert.rejects(read("none"), { message: "the signing key hook/none can't be read (ENOENT)" });
  await assert.rejects(read("plain", other), {
    message: "the signing key hook/plain can't be read (ENOENT)",
  });
  for (const name of ["..", "../acme/hook", "a/b", ""]) {
    await assert.rejects(read("plain", acme, name), /has no valid name/, name);
  }
  await assert.rejects(
    signingKeysIn(null)(acme, [{ name: "hook", key: "plain" }]),
    /no folder of signing keys/,
  );
});
