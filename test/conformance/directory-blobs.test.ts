import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readdir, rename, rm, symlink, truncate, utimes, writeFile } from "node:fs/promises";
import { createServer, request as httpRequest, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { after, afterEach, before, beforeEach, describe, test } from "node:test";
import { type DirectoryBlobs, directoryBlobs } from "../../src/blobs/directory/directory-blobs.ts";
import { type Capability } from "../../src/core/blob.port.ts";
import { instant, seconds } from "../../src/core/time.ts";
import { type HttpAnswer, sendHttp } from "../support/send-http.ts";
import { blobConformance, contentOf } from "./blob.ts";

const never = new AbortController().signal;
const minute = seconds(60);

/** A directory store behind a real listener, with a clock that the test moves. */
class Bench {
  readonly keys: Buffer[] = [randomBytes(32)];
  readonly faults: unknown[] = [];
  now = BigInt(Date.now()) * 1000n;
  directory = "";
  origin = "";
  #server: Server = createServer();
  #blobs: DirectoryBlobs | undefined;

  async start(): Promise<this> {
    this.directory = await mkdtemp(join(tmpdir(), "holdfast-blobs-"));
    this.#server = createServer((request, response) => {
      void this.blobs.handle(request, response).then((handled) => {
        if (!handled) response.writeHead(418).end();
      });
    });
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    const { port } = this.#server.address() as AddressInfo;
    this.origin = `http://127.0.0.1:${port}`;
    this.open();
    return this;
  }

  open(options: { readonly keys?: Buffer[]; readonly abandonedAfter?: ReturnType<typeof seconds> } = {}) {
    this.#blobs = directoryBlobs({
      directory: this.directory,
      publicUrl: () => this.origin,
      keys: this.keys,
      clock: () => instant(this.now),
      onFault: (error) => this.faults.push(error),
      ...options,
    });
    return this.#blobs;
  }

  get blobs(): DirectoryBlobs {
    assert.ok(this.#blobs);
    return this.#blobs;
  }

  incoming = () => readdir(join(this.directory, "incoming"));

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await rm(this.directory, { recursive: true, force: true });
  }
}

blobConformance("directory", async () => {
  const bench = await new Bench().start();
  return {
    store: bench.blobs,
    expire: async (capability) => {
      bench.now = capability.expiresAt;
    },
    close: () => bench.close(),
  };
});

describe("directory store: capabilities over HTTP", () => {
  let bench: Bench;
  const bytes = randomBytes(1000);
  const content = contentOf(bytes);
  before(async () => {
    bench = await new Bench().start();
  });
  after(() => bench.close());

  const use = ({ method, url, headers }: Capability, body?: Uint8Array) =>
    sendHttp(method, url, headers, body);
  const problem = (answer: HttpAnswer): unknown => {
    assert.equal(answer.headers["content-type"], "application/problem+json");
    const document = JSON.parse(answer.body.toString()) as { status: number; code: string };
    assert.equal(document.status, answer.status);
    return [document.status, document.code];
  };

  test("E18: each refusal has its status and code", async () => {
    const upload = await bench.blobs.grantUpload("s/a", content, minute);
    const lengths = (length: string) => ({ ...upload, headers: { "content-length": length } });
    assert.deepEqual(problem(await use(upload, randomBytes(1000))), [422, "content_mismatch"]);
    assert.deepEqual(problem(await use(lengths("999"), bytes.subarray(1))), [400, "invalid_request"]);
    assert.deepEqual(problem(await use(lengths("1001"), randomBytes(1001))), [413, "payload_too_large"]);
    const forged = { ...upload, url: upload.url.replace("bytes=1000", "bytes=1001") };
    assert.deepEqual(problem(await use(forged, bytes)), [403, "capability_invalid"]);
    const get = await sendHttp("GET", upload.url, {});
    assert.deepEqual([problem(get), get.headers.allow], [[405, "method_not_allowed"], "PUT"]);
    const missing = await bench.blobs.grantDownload("s/missing", content, minute);
    assert.deepEqual(problem(await use(missing)), [404, "not_found"]);
    bench.now += 60_000_000n;
    assert.deepEqual(problem(await use(upload, bytes)), [403, "capability_expired"]);
    assert.deepEqual(bench.faults, []);
    assert.deepEqual(await bench.incoming(), []);
  });

  test("E18: a body without a length is refused", async () => {
    const { url } = await bench.blobs.grantUpload("s/chunked", content, minute);
    const answer = await sendHttp("PUT", url, { "transfer-encoding": "chunked" }, bytes);
    assert.deepEqual(problem(answer), [400, "invalid_request"]);
  });

  test("E18: a wrong length is answered at once, before the body was sent", async () => {
    const { url } = await bench.blobs.grantUpload("s/early", content, minute);
    const sent = httpRequest(url, { method: "PUT", headers: { "content-length": "5000000000" } });
    sent.on("error", () => undefined);
    sent.flushHeaders();
    const [response] = (await once(sent, "response")) as [{ statusCode: number }];
    assert.equal(response.statusCode, 413);
    sent.destroy();
  });

  test("E18: an upload that is not complete when its capability expires is cut off and leaves nothing", async () => {
    const { url } = await bench.blobs.grantUpload("s/slow", content, seconds(0.05));
    const sent = httpRequest(url, { method: "PUT", headers: { "content-length": "1000" } });
    sent.write(bytes.subarray(0, 500));
    // The connection ends, with or without an answer that still gets through.
    await Promise.race([once(sent, "response"), once(sent, "error")]).catch(() => undefined);
    sent.on("error", () => undefined);
    sent.destroy();
    assert.equal(await bench.blobs.size("s/slow", never), null);
  });

  test("a download carries its length and digest", async () => {
    await bench.blobs.put("s/down", content, Readable.from([bytes]), never);
    const answer = await use(await bench.blobs.grantDownload("s/down", content, minute));
    assert.equal(
      answer.headers["repr-digest"],
      `sha-256=:${Buffer.from(content.sha256, "hex").toString("base64")}:`,
    );
    assert.equal(answer.headers["content-length"], "1000");
  });

  test("S13: an object that was damaged on disk never arrives complete", async () => {
    const whole = randomBytes(500_000);
    const key = "s/damaged";
    await bench.blobs.put(key, contentOf(whole), Readable.from([whole]), never);
    const file = join(bench.directory, "objects", "s", "damaged~");
    const damaged = Buffer.from(whole);
    damaged[400_000] = (damaged[400_000] ?? 0) ^ 1;
    await writeFile(file, damaged);
    const capability = await bench.blobs.grantDownload(key, contentOf(whole), minute);
    await assert.rejects(use(capability), { code: "ECONNRESET" });
    await truncate(file, 100);
    assert.deepEqual(problem(await use(capability)), [422, "content_mismatch"]);
  });

  test("E18: keys rotate: the newest signs, all verify, a removed one does not", async () => {
    const old = await bench.blobs.grantUpload("s/rotated", content, minute);
    const [first] = bench.keys;
    assert.ok(first);
    const second = randomBytes(32);
    const rotated = bench.open({ keys: [second, first] });
    const fresh = await rotated.grantUpload("s/rotated", content, minute);
    assert.equal((await use(old, bytes)).status, 204);
    assert.equal((await use(fresh, bytes)).status, 204);
    bench.open({ keys: [second] });
    assert.deepEqual(problem(await use(old, bytes)), [403, "capability_invalid"]);
    assert.equal((await use(fresh, bytes)).status, 204);
    assert.throws(() => bench.open({ keys: [randomBytes(31)] }), RangeError);
    assert.throws(() => bench.open({ keys: [] }), RangeError);
    bench.open();
  });

  test("other paths are left to the listener", async () => {
    assert.equal((await sendHttp("GET", `${bench.origin}/metrics`, {})).status, 418);
  });
});

describe("directory store: the file system", () => {
  let bench: Bench;
  const bytes = randomBytes(1000);
  const content = contentOf(bytes);
  beforeEach(async () => {
    bench = await new Bench().start();
  });
  afterEach(() => bench.close());

  test("S13: SIGKILL in the middle of an upload leaves nothing readable, and the next start sweeps it", {
    timeout: 30_000,
  }, async () => {
    const child = spawn(process.execPath, ["--input-type=module", "-e", crashingUpload(bench.directory)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    await once(child.stdout, "data");
    while ((await bench.incoming()).length === 0) await new Promise((resolve) => setImmediate(resolve));
    child.kill("SIGKILL");
    await once(child, "exit");

    assert.equal((await bench.incoming()).length, 1);
    bench.open();
    assert.equal((await bench.incoming()).length, 1, "it could still belong to a living process");
    const blobs = bench.open({ abandonedAfter: seconds(-60) });
    assert.deepEqual(await bench.incoming(), []);
    assert.equal(await blobs.size("crash/object", never), null);
    for await (const { key } of blobs.list("crash/", never)) assert.fail(key);
    await blobs.put("crash/object", content, Readable.from([bytes]), never);
    assert.equal(await blobs.verify("crash/object", content, never), true);
  });

  test("an upload is swept only when nothing was written to it for a while", async () => {
    const [young, old] = ["young", "old"].map((name) => join(bench.directory, "incoming", name));
    assert.ok(young !== undefined && old !== undefined);
    await writeFile(young, "");
    await writeFile(old, "");
    const before = Number(bench.now / 1_000_000n) - 3601;
    await utimes(old, before, before);
    bench.open();
    assert.deepEqual(await bench.incoming(), ["young"]);
  });

  test("symbolic links out of the store are not followed", async () => {
    const outside = await mkdtemp(join(tmpdir(), "holdfast-outside-"));
    try {
      await writeFile(join(outside, "object~"), bytes);
      await bench.blobs.put("real/object", content, Readable.from([bytes]), never);
      const objects = join(bench.directory, "objects");
      await symlink(outside, join(objects, "linked"));
      await symlink(join(outside, "object~"), join(objects, "real", "link~"));

      const calls = [
        () => bench.blobs.read("linked/object", content, never),
        () => bench.blobs.size("linked/object", never),
        () => bench.blobs.put("linked/new", content, Readable.from([bytes]), never),
        () => bench.blobs.remove("linked/object", never),
        () => bench.blobs.read("real/link", content, never),
        async () => {
          for await (const { key } of bench.blobs.list("linked/", never)) assert.fail(key);
        },
      ];
      for (const call of calls) await assert.rejects(call(), { reason: "forbidden" });
      const listed: string[] = [];
      for await (const { key } of bench.blobs.list("real/", never)) listed.push(key);
      assert.deepEqual(listed, ["real/object"]);
      assert.deepEqual(await readdir(outside), ["object~"]);
      assert.deepEqual(await bench.incoming(), []);
    } finally {
      await rm(outside, { recursive: true });
    }
  });

  test("a removal takes the empty folders with it", async () => {
    await bench.blobs.put("job/1/a", content, Readable.from([bytes]), never);
    await bench.blobs.put("job/2/a", content, Readable.from([bytes]), never);
    await bench.blobs.remove("job/1/a", never);
    assert.deepEqual(await readdir(join(bench.directory, "objects", "job")), ["2"]);
  });

  test("a fault of the disk is a 503 that can be tried again, and is reported", async () => {
    const { url, headers } = await bench.blobs.grantUpload("job/fault", content, minute);
    await rename(join(bench.directory, "incoming"), join(bench.directory, "elsewhere"));
    const answer = await sendHttp("PUT", url, headers, bytes);
    assert.deepEqual([answer.status, answer.headers["retry-after"]], [503, "1"]);
    assert.equal(bench.faults.length, 1);
    await rename(join(bench.directory, "elsewhere"), join(bench.directory, "incoming"));
    assert.equal((await sendHttp("PUT", url, headers, bytes)).status, 204);
  });
});

/** A process that stalls in the middle of a put, for ever. */
function crashingUpload(directory: string): string {
  const source = new URL("../../src/blobs/directory/directory-blobs.ts", import.meta.url);
  return `
    import { Readable } from "node:stream";
    import { directoryBlobs } from ${JSON.stringify(source.href)};
    const blobs = directoryBlobs({ directory: ${JSON.stringify(directory)}, publicUrl: "", keys: [Buffer.alloc(32)] });
    const body = new Readable({ read() {} });
    body.push(Buffer.alloc(100_000));
    setInterval(() => undefined, 1000);
    console.log("uploading");
    await blobs.put("crash/object", { bytes: 200_000n, sha256: "0".repeat(64) }, body, new AbortController().signal);
  `;
}
