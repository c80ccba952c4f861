import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { connect } from "node:net";
import { after, test } from "node:test";
import { pino } from "pino";
import { sendHttp } from "../../test/support/send-http.ts";
import { HoldfastError } from "../core/errors.ts";
import { brandId, type SandboxId, type TenantId, uuidv7 } from "../core/ids.ts";
import { instant } from "../core/time.ts";
import { callbackLimits } from "../wire/callback.ts";
import type { ProblemDocument } from "../wire/problem.ts";
import { callbackToken, type SandboxIdentity } from "./callback.ts";
import { type SandboxReports, startCallbackListener } from "./http.ts";

const keys = [
  { id: "new", key: randomBytes(32) },
  { id: "old", key: randomBytes(32) },
];
const identity: SandboxIdentity = {
  tenant: brandId<TenantId>("acme"),
  sandbox: brandId<SandboxId>(uuidv7()),
  deadline: instant(4_000_000_000_000_000n),
};
const token = callbackToken(keys, identity);
const heard: { readonly from: SandboxIdentity; readonly what: string; readonly report: unknown }[] = [];
let fault: unknown;

async function hear<T>(from: SandboxIdentity, what: string, report: unknown, answer: T): Promise<T> {
  if (fault !== undefined) throw fault;
  heard.push({ from, what, report });
  return await Promise.resolve(answer);
}
const capability = {
  method: "PUT",
  url: "http://blobs/x",
  headers: { a: "b" },
  expiresAt: instant(0n),
} as const;
const object = { object: "o", bytes: 3n, sha256: "a".repeat(64) };
const reports: SandboxReports = {
  progress: (from, report) => hear(from, "progress", report, undefined),
  pins: (from, report) => hear(from, "pins", report, { pins: report.pins, missing: [] }),
  result: (from, report) => hear(from, "result", report, undefined),
  upload: (from, name, report) => hear(from, `upload ${name}`, report, capability),
  complete: (from, name, report) => hear(from, `complete ${name}`, report, undefined),
  download: (from, { phase, name }) =>
    hear(
      from,
      `download ${phase}/${name}`,
      {},
      { ...capability, method: "GET", ...object, mediaType: "a/b" },
    ),
  artifact: (from, report) => hear(from, "artifact", report, object),
};

const listener = await startCallbackListener({
  host: "127.0.0.1",
  port: 0,
  keys,
  reports,
  async beside(request, response) {
    if (request.url === "/blobs/broken") throw new Error("the disk is gone");
    if (request.url !== "/blobs/one") return await Promise.resolve(false);
    response.end("bytes");
    return true;
  },
  log: pino({ level: "silent" }),
});
after(() => listener.close());
const origin = `http://127.0.0.1:${listener.port}`;

async function call(
  path: string,
  body: string | Buffer,
  headers: Readonly<Record<string, string>> = {},
  method = "POST",
): Promise<{ status: number; body: ProblemDocument & Record<string, unknown> }> {
  const bytes = Buffer.from(body);
  const answer = await sendHttp(
    method,
    origin + path,
    {
      authorization: `Bearer ${token}`,
      "content-type": "application/json",
      "content-length": String(bytes.length),
      ...headers,
    },
    bytes,
  );
  return {
    status: answer.status,
    body: JSON.parse(answer.body.toString()) as ProblemDocument & Record<string, unknown>,
  };
}

async function unheard(what: () => Promise<void>): Promise<void> {
  const before = heard.length;
  await what();
  assert.equal(heard.length, before, "it was heard all the same");
}

const progress = "/callback/v1/progress";
const sha256 = "b".repeat(64);

test("E17: each call is heard as the sandbox of its token, with its body as it was sent", async () => {
  for (const [path, body, what, answer] of [
    ["/progress", { message: "m", percent: 0 }, "progress", {}],
    [
      "/pins",
      { pins: { engine: "c".repeat(40) } },
      "pins",
      { pins: { engine: "c".repeat(40) }, missing: [] },
    ],
    ["/result", { null: null, nested: { a: ["1", 1] } }, "result", {}],
    ["/objects/a.b/upload", { bytes: 3, sha256 }, "upload a.b", undefined],
    ["/objects/a.b/complete", { bytes: 3, sha256 }, "complete a.b", { bytes: 3, sha256 }],
    ["/objects/source/a.b/download", {}, "download source/a.b", undefined],
    [
      "/artifact",
      { object: "o", files: [{ name: "n", bytes: 0, sha256 }] },
      "artifact",
      { ...object, bytes: 3 },
    ],
  ] as const) {
    const reply = await call(`/callback/v1${path}`, JSON.stringify(body));
    assert.equal(reply.status, 200, JSON.stringify(reply.body));
    assert.deepEqual(heard.at(-1), { from: identity, what, report: body });
    if (answer !== undefined) assert.deepEqual(reply.body, answer);
  }
});

test("E17: a token of a key that is being rotated out still speaks; one of no key does not", async () => {
  const old = callbackToken(keys.slice(1), identity);
  assert.equal((await call(progress, '{"message":"m"}', { authorization: `Bearer ${old}` })).status, 200);
  const strange = callbackToken([{ id: "new", key: randomBytes(32) }], identity);
  await unheard(async () => {
    for (const authorization of [`Bearer ${strange}`, "Bearer", "Basic abc", `bearer ${token}x`, token, ""]) {
      const reply = await call(progress, '{"message":"m"}', { authorization });
      assert.deepEqual([reply.status, reply.body.code], [401, "unauthenticated"], authorization);
    }
  });
});

test("E17: who may not speak is refused before the body has come", async () => {
  const socket = connect(listener.port, "127.0.0.1");
  const answer = new Promise<string>((resolve, reject) => {
    socket.once("data", (data) => resolve(data.toString()));
    socket.once("error", reject);
  });
  socket.write(
    `POST ${progress} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer hfs_x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{`,
  );
  assert.match(await answer, /^HTTP\/1\.1 401 /);
  socket.destroy();
});

test("E17: a body that is not exactly what the contract says is refused, and nothing of it is heard", async () => {
  await unheard(async () => {
    for (const [path, body, status, code] of [
      ["/progress", "", 400, "invalid_json"],
      ["/progress", "{", 400, "invalid_json"],
      ["/progress", '{"message":"a","message":"b"}', 400, "invalid_json"],
      ["/progress", Buffer.from([0x22, 0xff, 0x22]), 400, "invalid_json"],
      ["/progress", '{"message":"\\u0000"}', 400, "invalid_json"],
      ["/progress", '{"message":"\\ud800"}', 400, "invalid_json"],
      ["/progress", `${"[".repeat(40)}${"]".repeat(40)}`, 400, "invalid_json"],
      ["/progress", '{"message":"m","more":1}', 400, "invalid_request"],
      ["/progress", '{"message":1}', 400, "invalid_request"],
      ["/progress", '{"message":"m","percent":"1"}', 400, "invalid_request"],
      ["/progress", "null", 400, "invalid_request"],
      ["/pins", '{"pins":{"Engine":"c"}}', 400, "invalid_request"],
      ["/pins", `{"pins":{"__proto__":"${"c".repeat(40)}"}}`, 400, "invalid_request"],
      ["/result", "[]", 400, "invalid_request"],
      ["/objects/a/upload", `{"bytes":"3","sha256":"${sha256}"}`, 400, "invalid_request"],
      ["/objects/a/upload", `{"bytes":3,"sha256":"${sha256.toUpperCase()}"}`, 400, "invalid_request"],
      ["/objects/a/upload", `{"bytes":3.5,"sha256":"${sha256}"}`, 400, "invalid_request"],
      ["/objects/source/a/download", '{"more":1}', 400, "invalid_request"],
      ["/artifact", '{"object":"o"}', 400, "invalid_request"],
    ] as const) {
      const reply = await call(`/callback/v1${path}`, body);
      assert.deepEqual(
        [reply.status, reply.body.code],
        [status, code],
        `${path} ${String(body).slice(0, 60)}`,
      );
    }
  });
});

test("E17: too much, another media type, another path or method", async () => {
  await unheard(async () => {
    const large = JSON.stringify({ message: "x".repeat(callbackLimits.bodyBytesMax) });
    const tooLarge = await call(progress, large);
    assert.deepEqual([tooLarge.status, tooLarge.body.code], [413, "payload_too_large"]);
    const form = await call(progress, "message=m", { "content-type": "application/x-www-form-urlencoded" });
    assert.deepEqual([form.status, form.body.code], [415, "unsupported_media_type"]);
    for (const [method, path] of [
      ["POST", "/callback/v1/nothing"],
      ["POST", "/callback/v1/progress/"],
      ["POST", "/v1/jobs"],
      ["POST", "/callback/v1/objects/..%2fx/upload"],
      ["POST", `/callback/v1/objects/${"a".repeat(129)}/upload`],
    ] as const) {
      const reply = await call(path, "{}", {}, method);
      assert.ok(reply.status === 404 || reply.status === 400, `${method} ${path}: ${reply.status}`);
    }
    for (const method of ["GET", "PUT", "DELETE", "PATCH"]) {
      const reply = await call(progress, "{}", {}, method);
      assert.ok(reply.status === 404 || reply.status === 405, `${method}: ${reply.status}`);
    }
  });
});

test("E17: a refusal is a problem document; what goes wrong inside shows nothing of it", async () => {
  try {
    fault = new HoldfastError("sandbox_fenced", "the sandbox is stopping and may not report");
    const fenced = await call(progress, '{"message":"m"}');
    assert.deepEqual([fenced.status, fenced.body.code], [409, "sandbox_fenced"]);
    fault = new Error("password=hunter2");
    const inside = await call(progress, '{"message":"m"}');
    assert.deepEqual([inside.status, inside.body.code], [500, "internal"]);
    assert.ok(!JSON.stringify(inside.body).includes("hunter2"));
  } finally {
    fault = undefined;
  }
});

test("what stands beside the callbacks is served without their token, and its fault ends nothing else", async () => {
  const one = await sendHttp("GET", `${origin}/blobs/one`, {});
  assert.deepEqual([one.status, one.body.toString()], [200, "bytes"]);
  await assert.rejects(sendHttp("GET", `${origin}/blobs/broken`, {}));
  assert.equal((await call(progress, '{"message":"m"}')).status, 200);
});
