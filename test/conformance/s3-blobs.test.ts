import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { s3Blobs } from "../../src/blobs/s3/s3-blobs.ts";
import { BlobRefusal, type BlobStore, type Capability } from "../../src/core/blob.port.ts";
import { isHoldfastError } from "../../src/core/errors.ts";
import { instant, seconds } from "../../src/core/time.ts";
import { type S3Server, startS3 } from "../support/s3/server.ts";
import { sendHttp } from "../support/send-http.ts";
import { blobConformance, contentOf } from "./blob.ts";

const never = new AbortController().signal;
const minute = seconds(60);

function storeOf(server: S3Server, more: Partial<Parameters<typeof s3Blobs>[0]> = {}): BlobStore {
  const { endpoint, bucket, region, credentials } = server;
  const clock = () => instant(BigInt(Date.now() + server.ahead) * 1000n);
  return s3Blobs({ endpoint, bucket, region, credentials, forcePathStyle: true, clock, ...more });
}

blobConformance("s3 (a stand-in that checks signatures)", async () => {
  const server = await startS3();
  return {
    store: storeOf(server),
    expire: async ({ expiresAt }) => {
      server.ahead += Number(expiresAt / 1000n) - (Date.now() + server.ahead);
    },
    close: () => server.close(),
  };
});

/**
 * `http://ACCESS_KEY_ID:SECRET_ACCESS_KEY@HOST:PORT/BUCKET?region=REGION`, of a bucket that may be written to. With
 * `&keys=files` the server keeps objects as files of a file system, which has no object beside a folder of its name.
 */
const real = process.env["HOLDFAST_TEST_S3_URL"];
if (real === undefined || real === "") {
  test("s3: a real server", { skip: "HOLDFAST_TEST_S3_URL is not set" }, () => undefined);
} else {
  const url = new URL(real);
  blobConformance(
    `s3 (the server of HOLDFAST_TEST_S3_URL, ${url.host})`,
    async () => ({
      store: s3Blobs({
        endpoint: url.origin,
        region: url.searchParams.get("region") ?? "us-east-1",
        bucket: url.pathname.slice(1),
        credentials: {
          accessKeyId: decodeURIComponent(url.username),
          secretAccessKey: decodeURIComponent(url.password),
        },
        forcePathStyle: true,
      }),
      // Its clock is not ours to move.
      expire: ({ expiresAt }) => wait(Number(expiresAt / 1000n) - Date.now() + 1000),
      lifetime: seconds(10),
      close: async () => undefined,
    }),
    url.searchParams.get("keys") === "files" ? "HOLDFAST_TEST_S3_URL says that its keys are files" : null,
  );
}

describe("s3: what is asked of the server", () => {
  let server: S3Server;
  let store: BlobStore;
  const bytes = randomBytes(5000);
  const content = contentOf(bytes);
  const put = (key: string) => store.put(key, content, Readable.from([bytes], { objectMode: false }), never);
  const use = ({ method, url, headers }: Capability, body?: Uint8Array) =>
    sendHttp(method, url, headers, body);
  before(async () => {
    server = await startS3();
    store = storeOf(server);
  });
  after(() => server.close());

  test("S13: no object is made public and no write is conditional", async () => {
    server.seen.length = 0;
    await put("s/private");
    await use(await store.grantUpload("s/granted", content, minute), bytes);
    const uploads = server.seen.filter(({ method }) => method === "PUT");
    assert.equal(uploads.length, 2);
    for (const { headers } of uploads) {
      const names = Object.keys(headers).filter((name) => /acl|grant|if-/.test(name));
      assert.deepEqual(names, []);
    }
    const { status } = await sendHttp("GET", `${server.endpoint}/${server.bucket}/s/private`, {});
    assert.equal(status, 403);
  });

  test("S13: the store itself is told the digest of what it is sent", async () => {
    server.seen.length = 0;
    await put("s/digest");
    assert.equal(server.seen[0]?.headers["x-amz-content-sha256"], content.sha256);
  });

  test("E18: length, type and digest are signed headers of an upload, and the digest is not in its URL", async () => {
    const { url, headers } = await store.grantUpload("s/signed", content, minute);
    const query = new URL(url).searchParams;
    assert.deepEqual(query.get("X-Amz-SignedHeaders")?.split(";"), [
      "content-length",
      "content-type",
      "host",
      "x-amz-checksum-sha256",
    ]);
    assert.equal(query.get("x-amz-checksum-sha256"), null);
    assert.equal(query.get("X-Amz-Expires"), "60");
    const refusals: Record<string, Record<string, string>> = {
      type: { ...headers, "content-type": "text/html" },
      "no type": {
        "content-length": "5000",
        "x-amz-checksum-sha256": String(headers["x-amz-checksum-sha256"]),
      },
      "no digest": { "content-length": "5000", "content-type": "application/octet-stream" },
      "digest of others": {
        ...headers,
        "x-amz-checksum-sha256": Buffer.from(contentOf(Buffer.alloc(1)).sha256, "hex").toString("base64"),
      },
      public: { ...headers, "x-amz-acl": "public-read" },
    };
    for (const [what, changed] of Object.entries(refusals)) {
      assert.equal((await sendHttp("PUT", url, changed, bytes)).status, 403, what);
    }
    assert.equal(await store.size("s/signed", never), null);
    assert.equal((await sendHttp("PUT", url, headers, bytes)).status, 200);
  });

  test("E18: a capability never lives longer than it was granted for, nor than a signature may", async () => {
    const before = instant(BigInt(Date.now()) * 1000n);
    const short = await store.grantDownload("s/a", content, seconds(2.9));
    assert.equal(new URL(short.url).searchParams.get("X-Amz-Expires"), "2");
    assert.ok(short.expiresAt <= before + seconds(2.9) + seconds(1));
    const long = await store.grantDownload("s/a", content, seconds(30 * 86_400));
    assert.equal(new URL(long.url).searchParams.get("X-Amz-Expires"), "604800");
  });

  test("E18: capabilities in virtual-host style, and for the address that sandboxes use", async () => {
    const { port } = new URL(server.endpoint);
    const hosted = storeOf(server, {
      forcePathStyle: false,
      publicEndpoint: `http://s3.test.example:${port}`,
    });
    const key = "s/hosted";
    const { url, headers } = await hosted.grantUpload(key, content, minute);
    const { host, pathname, search } = new URL(url);
    assert.deepEqual([host, pathname], [`${server.bucket}.s3.test.example:${port}`, `/${key}`]);
    const reached = `${server.endpoint}${pathname}${search}`;
    assert.equal((await sendHttp("PUT", reached, { ...headers, host }, bytes)).status, 200);
    assert.equal((await sendHttp("PUT", reached, headers, bytes)).status, 403);
    assert.equal(await hosted.verify(key, content, never), true);
  });

  test("S13: an object that was damaged in the store is never read whole", async () => {
    await put("s/damaged");
    const damaged = Buffer.from(bytes);
    damaged[4999] = (damaged[4999] ?? 0) ^ 1;
    await server.damage("s/damaged", damaged);
    assert.equal(await store.verify("s/damaged", content, never), false);
    const taken: Buffer[] = [];
    const reading = async () => {
      for await (const chunk of await store.read("s/damaged", content, never)) taken.push(Buffer.from(chunk));
    };
    await assert.rejects(reading(), (error) => error instanceof BlobRefusal && error.reason === "mismatch");
    assert.ok(Buffer.concat(taken).length < 5000);
  });

  test("a listing follows every page", async () => {
    for (let index = 0; index < 10; index += 1) await put(`pages/${index}`);
    const listed: string[] = [];
    for await (const { key } of store.list("pages/", never)) listed.push(key);
    assert.equal(new Set(listed).size, 10);
  });

  test("a server that fails, refuses or is away is `unavailable`, not a missing object", async () => {
    const unavailable = (error: unknown) => isHoldfastError(error, "unavailable");
    const calls = (from: BlobStore) => [
      () => from.size("s/private", never),
      () => from.verify("s/private", content, never),
      () => from.read("s/private", content, never),
      () => from.remove("s/private", never),
      () => from.put("s/new", content, Readable.from([bytes], { objectMode: false }), never),
    ];
    server.broken = 500;
    for (const call of calls(store)) await assert.rejects(call(), unavailable);
    server.broken = null;
    const wrong = { accessKeyId: server.credentials.accessKeyId, secretAccessKey: "another" };
    for (const call of calls(storeOf(server, { credentials: wrong }))) {
      await assert.rejects(call(), unavailable);
    }
    await assert.rejects(storeOf(server, { bucket: "none" }).read("s/private", content, never), unavailable);
    const away = storeOf(server, { endpoint: "http://127.0.0.1:1" });
    await assert.rejects(away.size("s/private", never), unavailable);
    assert.equal(await store.verify("s/private", content, never), true);
  });
});
