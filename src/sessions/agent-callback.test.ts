import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { after, test } from "node:test";
import { pino } from "pino";
import { sendHttp } from "../../test/support/send-http.ts";
import type { BlobContent } from "../core/blob.port.ts";
import { HoldfastError } from "../core/errors.ts";
import { brandId, type SandboxId, type TenantId, uuidv7 } from "../core/ids.ts";
import { instant } from "../core/time.ts";
import { callbackToken, type SandboxIdentity } from "../sandboxes/callback.ts";
import { type SandboxReports, startCallbackListener } from "../sandboxes/http.ts";
import { agentCallbackRoutes } from "./agent-callback.ts";
import type { AgentInput } from "./report.store.ts";

const keys = [{ id: "k", key: randomBytes(32) }];
const identity: SandboxIdentity = {
  tenant: brandId<TenantId>("acme"),
  sandbox: brandId<SandboxId>(uuidv7()),
  deadline: instant(4_000_000_000_000_000n),
};
const token = callbackToken(keys, identity);
const sha256 = "a".repeat(64);
const capability = { url: "http://blobs/x", headers: { a: "b" }, expiresAt: instant(0n) } as const;
const input: AgentInput = {
  session: "s",
  activation: "a",
  ordinal: 2n,
  run: 1,
  stimulus: { text: "hello" },
  permissions: ["notes.write"],
  revision: 7n,
  bundle: { ...capability, method: "GET", bytes: 3n, sha256 },
};
let answer: AgentInput | HoldfastError = input;
const promised: [SandboxIdentity, BlobContent][] = [];
const refuse = () => Promise.reject(new HoldfastError("sandbox_fenced", "not an execution"));
const reports: SandboxReports = {
  progress: refuse,
  pins: refuse,
  result: refuse,
  upload: refuse,
  complete: refuse,
  download: refuse,
  artifact: refuse,
};
const listener = await startCallbackListener({
  host: "127.0.0.1",
  port: 0,
  keys,
  reports,
  routes: [
    agentCallbackRoutes({
      input: (from) => {
        assert.deepEqual(from, identity);
        return answer instanceof HoldfastError ? Promise.reject(answer) : Promise.resolve(answer);
      },
      promise: (from, content) => {
        promised.push([from, content]);
        return Promise.resolve({ ...capability, method: "PUT" });
      },
    }),
  ],
  beside: () => Promise.resolve(false),
  log: pino({ level: "silent" }),
});
after(() => listener.close());

async function call(path: string, body: string, authorization = `Bearer ${token}`) {
  const url = `http://127.0.0.1:${listener.port}/callback/v1/agent/${path}`;
  const headers = { authorization, "content-type": "application/json" };
  const reply = await sendHttp("POST", url, headers, Buffer.from(body));
  return { status: reply.status, body: JSON.parse(reply.body.toString()) as Record<string, unknown> };
}

test("S13: a run is given its stimulus, what it may do, and the capability to read the head and nothing else", async () => {
  const { status, body } = await call("input", "{}");
  assert.equal(status, 200);
  const { expiresAt: _, ...grant } = capability;
  assert.deepEqual(body, {
    ...input,
    ordinal: 2,
    revision: 7,
    bundle: { ...grant, method: "GET", expires_at: "1970-01-01T00:00:00.000000Z", bytes: 3, sha256 },
  });
  answer = { ...input, bundle: null };
  assert.equal((await call("input", "{}")).body["bundle"], null);
});

test("a candidate is promised with its length and digest, and where to send it comes back", async () => {
  const { status, body } = await call("candidates", JSON.stringify({ bytes: 12, sha256 }));
  assert.equal(status, 200);
  assert.deepEqual([body["method"], body["url"]], ["PUT", capability.url]);
  assert.deepEqual(promised, [[identity, { bytes: 12n, sha256 }]]);
});

test("what is no promise of a bundle is refused before anybody hears of it", async () => {
  const before = promised.length;
  for (const [wanted, body] of [
    ["invalid_request", "{}"],
    ["invalid_request", JSON.stringify({ bytes: 0, sha256 })],
    ["invalid_request", JSON.stringify({ bytes: 1.5, sha256 })],
    ["invalid_request", JSON.stringify({ bytes: 1, sha256: "A".repeat(64) })],
    ["invalid_request", JSON.stringify({ bytes: 1, sha256, name: "x" })],
    ["payload_too_large", JSON.stringify({ bytes: 268_435_457, sha256 })],
    ["invalid_json", `{"bytes":1,"bytes":2,"sha256":"${sha256}"}`],
    ["invalid_json", '{"bytes":1,"sha256":"\\u0000"}'],
    ["invalid_json", ""],
  ] as const) {
    assert.equal((await call("candidates", body)).body["code"], wanted, body);
  }
  assert.equal(promised.length, before);
});

test("E17: without a sandbox's own token nothing is told; a fenced sandbox is told to stop", async () => {
  for (const wrong of ["", "Bearer x", `Bearer ${token.slice(0, -1)}`]) {
    assert.equal((await call("input", "{}", wrong)).status, 401);
  }
  answer = new HoldfastError("sandbox_fenced", "the activation is not running");
  assert.deepEqual((await call("input", "{}")).body["code"], "sandbox_fenced");
  answer = input;
});
