import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { Readable } from "node:stream";
import { after, test } from "node:test";
import { type BlobContent, BlobRefusal, type BlobStore } from "../../src/core/blob.port.ts";
import { assertOutsideTransition } from "../../src/core/outside.ts";
import type { AttemptView, JobView, LogLine } from "../../src/wire/job.ts";
import {
  finishAttempt,
  insertArtifact,
  insertAttempt,
  insertChunk,
  settleLog,
} from "../support/attempt-rows.ts";
import { noBlobs, openBench, submission } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";
import { until } from "../support/until.ts";

const objects = new Map<string, Buffer>();
const blobs: BlobStore = {
  ...noBlobs,
  async read(key: string, _content: BlobContent) {
    assertOutsideTransition("blobs.read");
    const bytes = objects.get(key);
    if (bytes === undefined) throw new BlobRefusal("absent", "gone");
    return Promise.resolve(Readable.from(chunked(bytes)));
  },
};
function* chunked(bytes: Buffer) {
  for (let at = 0; at < bytes.length; at += 65_536) yield bytes.subarray(at, at + 65_536);
}

const bench = await openBench({ after }, { blobs, limits: { heartbeatMs: 100 } });
const { kernel } = bench;

const read = async (id: string, query = "") => {
  const reply = await bench.call(bench.a, "GET", `/v1/jobs/${id}/logs${query}`);
  assert.equal(reply.status, 200, reply.text);
  return reply.text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as LogLine);
};
const texts = (lines: readonly LogLine[]) => lines.map(({ text }) => text);

/** Follows until the server ends the stream. */
async function follow(id: string, query = "") {
  const response = await new Promise<IncomingMessage>((resolve, reject) => {
    const sent = httpRequest(
      bench.url(`/v1/jobs/${id}/logs?follow=true${query}`),
      { headers: { authorization: `Bearer ${bench.a.token}` }, agent: false },
      resolve,
    );
    sent.on("error", reject);
    sent.end();
  });
  assert.equal(response.statusCode, 200);
  let text = "";
  response.setEncoding("utf8").on("data", (data: string) => {
    text += data;
  });
  const ended = once(response, "end");
  const lines = () =>
    text
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => JSON.parse(line) as LogLine);
  return { lines, ended, blanks: () => text.split("\n\n").length - 1 };
}

test("E19: output is read in the order of attempts, phases and chunks, a line at a time, from any line on", async () => {
  const phases = ["fetch", "build"].map((name) => ({ name, kind: "compile" as const, command: ["true"] }));
  const submitted = await bench.call(bench.a, "POST", "/v1/jobs", {
    body: { ...submission(), spec: { phases } },
  });
  const job = submitted.json<JobView>();
  const first = await insertAttempt(kernel, tenantA, job.id, 1, ["fetch", "build"]);
  const [fetch = "", build = ""] = first.sandboxes;
  // Stored out of order: what counts is where it belongs.
  await insertChunk(kernel, tenantA, build, 1, "five\n");
  await insertChunk(kernel, tenantA, fetch, 1, "one\ntwo\n");
  await insertChunk(kernel, tenantA, fetch, 2, "\nfour");
  for (const sandbox of first.sandboxes) await settleLog(kernel, sandbox);
  const lines = await read(job.id);
  assert.deepEqual(texts(lines), ["one", "two", "", "four", "five"]);
  assert.deepEqual(
    lines.map(({ phase }) => phase),
    ["fetch", "fetch", "fetch", "fetch", "build"],
  );
  for (const [index, { cursor }] of lines.entries()) {
    assert.deepEqual(texts(await read(job.id, `?after=${cursor}`)), texts(lines.slice(index + 1)));
  }
  assert.deepEqual(texts(await read(job.id, "?limit=2")), ["one", "two"]);
  assert.deepEqual(texts(await read(job.id, "?phase=build")), ["five"]);
  assert.deepEqual(texts(await read(job.id, "?attempt=2")), []);
  const refused = await bench.call(bench.a, "GET", `/v1/jobs/${job.id}/logs?after=nonsense`);
  assert.deepEqual([refused.status, refused.problem().code], [400, "invalid_cursor"]);
  const [attempt] = (await bench.call(bench.a, "GET", `/v1/jobs/${job.id}/attempts`)).json<{
    items: AttemptView[];
  }>().items;
  assert.deepEqual(
    attempt?.phases.map(({ name }) => name),
    ["fetch", "build"],
  );
  assert.equal(attempt?.sandboxes.length, 2);
  const one = await bench.call(bench.a, "GET", `/v1/jobs/${job.id}/attempts/1`);
  assert.deepEqual(one.json(), attempt);
  assert.equal((await bench.call(bench.a, "GET", `/v1/jobs/${job.id}/attempts/2`)).status, 404);
});

test("E19: more output than one look reads comes whole", async () => {
  const job = await bench.submit();
  const { sandboxes } = await insertAttempt(kernel, tenantA, job.id, 1, ["build"]);
  await kernel.ask(
    `insert into holdfast.log_chunks (tenant_id, sandbox_id, seq, stream, at, body)
     select $1, $2, n, 'stdout', now(), 'line ' || n || E'\\n' from generate_series(1, 200) n`,
    [tenantA, sandboxes[0]],
  );
  assert.deepEqual(
    texts(await read(job.id)),
    Array.from({ length: 200 }, (_, n) => `line ${n + 1}`),
  );
});

test("E19: followed live, nothing that is stored late is passed over, and the stream ends with the job", async () => {
  const job = await bench.submit();
  const followed = await follow(job.id);
  const { attempt, sandboxes } = await insertAttempt(kernel, tenantA, job.id, 1, ["fetch", "build"]);
  const [fetch = "", build = ""] = sandboxes;
  await insertChunk(kernel, tenantA, fetch, 1, "one\n");
  kernel.db.committed();
  await until("the first line came", () => followed.lines().length === 1);
  // The next phase's output is stored before the end of this one's.
  await insertChunk(kernel, tenantA, build, 1, "three\n");
  kernel.db.committed();
  await until("heartbeats came", () => followed.blanks() > 0);
  assert.deepEqual(texts(followed.lines()), ["one"]);
  await insertChunk(kernel, tenantA, fetch, 2, "two\n");
  await settleLog(kernel, fetch);
  kernel.db.committed();
  await until("the rest came", () => followed.lines().length === 3);
  const resumed = await follow(job.id, `&after=${followed.lines()[0]?.cursor}`);
  await settleLog(kernel, build);
  await finishAttempt(kernel, attempt, job.id);
  kernel.db.committed();
  await Promise.all([followed.ended, resumed.ended]);
  assert.deepEqual(texts(followed.lines()), ["one", "two", "three"]);
  assert.deepEqual(texts(resumed.lines()), ["two", "three"]);
  await until("no stream is left", () => bench.gateway().openStreams() === 0);
});

test("G8: following a waiting job ends when it is cancelled", async () => {
  const job = await bench.submit();
  const followed = await follow(job.id);
  await bench.call(bench.a, "POST", `/v1/jobs/${job.id}:cancel`);
  await followed.ended;
  assert.deepEqual(followed.lines(), []);
});

test("E20: an artifact comes as it was published, and after its removal is gone", async () => {
  const job = await bench.submit();
  const bytes = Buffer.alloc(300_000, "artifact ");
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  objects.set("a/site", bytes);
  await insertArtifact(kernel, tenantA, job.id, {
    name: "site.html",
    key: "a/site",
    bytes: bytes.length,
    sha256,
  });
  const list = (await bench.call(bench.a, "GET", `/v1/jobs/${job.id}/artifacts`)).json<{
    items: unknown[];
  }>();
  assert.equal(list.items.length, 1);
  const path = `/v1/jobs/${job.id}/artifacts/site.html`;
  const reply = await fetch(bench.url(path), { headers: { authorization: `Bearer ${bench.a.token}` } });
  assert.equal(reply.status, 200);
  assert.ok(Buffer.from(await reply.arrayBuffer()).equals(bytes));
  assert.deepEqual(
    [
      "content-length",
      "content-type",
      "content-disposition",
      "repr-digest",
      "etag",
      "x-content-type-options",
    ].map((name) => reply.headers.get(name)),
    [
      String(bytes.length),
      "text/html",
      'attachment; filename="site.html"',
      `sha-256=:${Buffer.from(sha256, "hex").toString("base64")}:`,
      `"${sha256}"`,
      "nosniff",
    ],
  );
  assert.equal((await bench.call(bench.a, "GET", `/v1/jobs/${job.id}/artifacts/other`)).status, 404);
  assert.equal((await bench.call(bench.a, "GET", `/v1/jobs/${job.id}/artifacts/..%2Fsite`)).status, 404);
  objects.delete("a/site");
  assert.equal((await bench.call(bench.a, "GET", path)).status, 410);
  await kernel.ask("update holdfast.artifacts set removed_at = now()");
  const gone = await bench.call(bench.a, "GET", path);
  assert.deepEqual([gone.status, gone.problem().code], [410, "gone"]);
});

test("output of a phase that the job doesn't have is a 404 that names those it has", async () => {
  const job = await bench.submit();
  const reply = await bench.call(bench.a, "GET", `/v1/jobs/${job.id}/logs?phase=nope`);
  assert.deepEqual([reply.status, reply.problem().code], [404, "not_found"]);
  assert.match(reply.problem().detail, /no phase nope; it has compile/);
});
