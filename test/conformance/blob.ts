import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { type BlobContent, BlobRefusal, type BlobStore, type Capability } from "../../src/core/blob.port.ts";
import { insideTransition } from "../../src/core/outside.ts";
import { type Microseconds, seconds } from "../../src/core/time.ts";
import { type HttpAnswer, sendHttp } from "../support/send-http.ts";

/** A store under test, with what only its maker knows. */
export interface BlobStoreUnderTest {
  readonly store: BlobStore;
  /** Resolves when the capability has expired: moves a controlled clock, or waits. */
  expire(capability: Capability): Promise<void>;
  /** How long a capability is good that is going to expire. A minute, where nobody has to wait for it. */
  readonly lifetime?: Microseconds;
  close(): Promise<void>;
}

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;
const never = new AbortController().signal;
const minute = seconds(60);

export const contentOf = (bytes: Uint8Array): BlobContent => ({
  bytes: BigInt(bytes.length),
  sha256: createHash("sha256").update(bytes).digest("hex"),
});

/** Every blob store passes this suite: the directory, and S3-compatible ones. */
export function blobConformance(
  name: string,
  makeStore: () => Promise<BlobStoreUnderTest>,
  /** Null, or why the server can't keep one object under `a` and another under `a/b`, or names over 255 bytes. */
  plainKeysOnly: string | null = null,
): void {
  describe(`blob store: ${name}`, () => {
    let made: BlobStoreUnderTest;
    let store: BlobStore;
    let serial = 0;
    const newKey = () => `test/job-${(serial += 1)}/1/source/object`;
    const put = (key: string, bytes: Uint8Array, content = contentOf(bytes)) =>
      store.put(key, content, Readable.from([bytes], { objectMode: false }), never);
    const read = async (key: string, content: BlobContent) =>
      Buffer.concat(await (await store.read(key, content, never)).toArray());

    before(async () => {
      made = await makeStore();
      store = made.store;
    });
    after(() => made.close());

    test("S13: what was put is read back, sized, verified and listed, and gone after its removal", async () => {
      const bytes = randomBytes(200_000);
      const key = newKey();
      await put(key, bytes);
      assert.deepEqual(await read(key, contentOf(bytes)), bytes);
      assert.equal(await store.size(key, never), 200_000n);
      assert.equal(await store.verify(key, contentOf(bytes), never), true);
      assert.equal(await store.verify(key, contentOf(randomBytes(200_000)), never), false);
      assert.equal(await store.verify(key, contentOf(randomBytes(5)), never), false);
      await store.remove(key, never);
      await store.remove(key, never);
      assert.equal(await store.size(key, never), null);
      assert.equal(await store.verify(key, contentOf(bytes), never), false);
      await assert.rejects(read(key, contentOf(bytes)), refusal("absent"));
    });

    test("S13: an object of no bytes is an object", async () => {
      const key = newKey();
      await put(key, Buffer.alloc(0));
      assert.equal(await store.size(key, never), 0n);
      assert.equal((await read(key, contentOf(Buffer.alloc(0)))).length, 0);
      const upload = newKey();
      const empty = contentOf(Buffer.alloc(0));
      const put204 = await use(await store.grantUpload(upload, empty, minute), Buffer.alloc(0));
      assert.ok(put204.status < 300, `status ${put204.status}`);
      const got = await use(await store.grantDownload(upload, empty, minute));
      assert.deepEqual([got.status, got.body.length], [200, 0]);
    });

    test("S13: bytes of another length or digest are refused and nothing of them is readable", async () => {
      const bytes = randomBytes(100_000);
      for (const other of [bytes.subarray(1), Buffer.concat([bytes, bytes]), randomBytes(100_000)]) {
        const key = newKey();
        await assert.rejects(put(key, other, contentOf(bytes)), refusal("mismatch"));
        assert.equal(await store.size(key, never), null);
      }
    });

    test("S13: a reader that expects other content gets an error and never the whole object", async () => {
      const bytes = randomBytes(100_000);
      const key = newKey();
      await put(key, bytes);
      const other = contentOf(randomBytes(100_000));
      await assert.rejects(read(key, other), refusal("mismatch"));
    });

    test("an upload that is aborted leaves nothing", async () => {
      const key = newKey();
      const stop = new AbortController();
      const stalled = new Readable({ read: () => undefined });
      stalled.push(randomBytes(10));
      const running = store.put(key, contentOf(randomBytes(20)), stalled, stop.signal);
      stop.abort();
      await assert.rejects(running);
      assert.equal(await store.size(key, never), null);
    });

    test("keys can't leave the store", async () => {
      const bytes = randomBytes(1);
      const bad = ["", "/a", "a/", "a//b", "..", "a/../b", "./a", "a\\b", "a b", "ä", "a%2fb", "a\0"];
      for (const key of [...bad, "x".repeat(513)]) {
        await assert.rejects(put(key, bytes), refusal("invalid_key"), `key ${JSON.stringify(key)}`);
        await assert.rejects(
          store.grantUpload(key, contentOf(bytes), minute),
          refusal("invalid_key"),
          `key ${JSON.stringify(key)}`,
        );
      }
    });

    const different = async (...keys: string[]) => {
      const all = new Map(keys.map((key) => [key, randomBytes(8)]));
      for (const [key, bytes] of all) await put(key, bytes);
      for (const [key, bytes] of all) assert.deepEqual(await read(key, contentOf(bytes)), bytes, key);
      const listed: string[] = [];
      for await (const { key, bytes } of store.list("k/", never)) {
        listed.push(key);
        assert.equal(bytes, 8n);
      }
      assert.deepEqual(listed.sort(), keys.sort());
      for (const key of keys) await store.remove(key, never);
    };

    test("keys that differ are different objects, if only by the case of a letter", () =>
      different("k/a", "k/A", "k/a.", "k/...", "k/b/a", `k/${"x".repeat(250)}`));

    test(
      "keys are not paths: one may go on where another ends, and may be long",
      {
        skip: plainKeysOnly ?? false,
      },
      () => different("k/a", "k/a/b", `k/${"x".repeat(510)}`),
    );

    test("a listing covers its prefix and nothing beside it", async () => {
      for (const key of ["p/1/a", "p/1/b/c", "p/10/a", "p/2/a"]) await put(key, randomBytes(3));
      const listed: string[] = [];
      for await (const { key } of store.list("p/1/", never)) listed.push(key);
      assert.deepEqual(listed.sort(), ["p/1/a", "p/1/b/c"]);
      for await (const { key } of store.list("p/none/", never)) assert.fail(key);
    });

    test("puts of one object at the same time all succeed, and it is whole", async () => {
      const bytes = randomBytes(300_000);
      const key = newKey();
      await Promise.all(Array.from({ length: 8 }, () => put(key, bytes)));
      assert.deepEqual(await read(key, contentOf(bytes)), bytes);
    });

    test("puts and removals of neighbours don't disturb each other", async () => {
      const bytes = randomBytes(100);
      await Promise.all(
        Array.from({ length: 40 }, async (_, index) => {
          const key = `n/shared/${index % 4}/${index}`;
          await put(key, bytes);
          if (index % 2 === 0) await store.remove(key, never);
        }),
      );
      let left = 0;
      for await (const { bytes } of store.list("n/shared/", never)) left += Number(bytes);
      assert.equal(left, 20 * 100);
    });

    test("100 MB stream through in bounded memory", async () => {
      const block = randomBytes(1_000_000);
      const hash = createHash("sha256");
      for (let index = 0; index < 100; index += 1) hash.update(block);
      const content = { bytes: 100_000_000n, sha256: hash.digest("hex") };
      let peak = 0;
      let calls = 0;
      const measure = () => {
        // Every tenth time, after a collection, so that garbage doesn't count.
        calls += 1;
        if (calls % 10 !== 1) return;
        // Twice: buffers that the first one found are freed beside it, and for certain when the second begins.
        collectGarbage();
        collectGarbage();
        const { heapUsed, arrayBuffers } = process.memoryUsage();
        peak = Math.max(peak, heapUsed + arrayBuffers);
      };
      measure();
      const start = peak;
      async function* blocks() {
        for (let index = 0; index < 100; index += 1) {
          measure();
          // A copy, so that blocks which are kept would be seen.
          yield Buffer.from(block);
        }
      }
      const key = newKey();
      await store.put(key, content, Readable.from(blocks(), { objectMode: false }), never);
      let taken = 0;
      for await (const chunk of await store.read(key, content, never)) {
        assert.ok(chunk instanceof Uint8Array);
        taken += chunk.length;
        if (taken % 1_000_000 < chunk.length) measure();
      }
      assert.ok(peak - start < 16_000_000, `grew by ${peak - start} bytes`);
      await store.remove(key, never);
    });

    test("E18: an upload capability stores its object, and the same request again is success", async () => {
      const bytes = randomBytes(150_000);
      const key = newKey();
      const capability = await store.grantUpload(key, contentOf(bytes), made.lifetime ?? minute);
      assert.equal(capability.method, "PUT");
      for (let times = 0; times < 2; times += 1) {
        const { status } = await use(capability, bytes);
        assert.ok(status >= 200 && status < 300, `status ${status}`);
      }
      assert.equal(await store.verify(key, contentOf(bytes), never), true);
    });

    test("E18: an upload that deviates in object, method, length, digest or time is refused and stores nothing", async () => {
      const bytes = randomBytes(5_000);
      const content = contentOf(bytes);
      const deviations: Record<string, (capability: Capability) => Promise<HttpAnswer>> = {
        object: (it) => use({ ...it, url: it.url.replace("/object?", "/another?") }, bytes),
        // With its bytes: a server may wait for what the length announces.
        method: (it) => use({ ...it, method: "GET" }, bytes),
        "method POST": (it) => sendHttp("POST", it.url, it.headers, bytes),
        "method DELETE": (it) => sendHttp("DELETE", it.url, it.headers, bytes),
        "fewer bytes": (it) => use(withLength(it, 4_999), bytes.subarray(1)),
        "more bytes": (it) => use(withLength(it, 5_001), Buffer.concat([bytes, Buffer.alloc(1)])),
        digest: (it) => use(it, randomBytes(5_000)),
        "digest in the URL": (it) =>
          use({ ...it, url: it.url.replaceAll(content.sha256, "0".repeat(64)) }, bytes),
        "no signature": (it) => use({ ...it, url: it.url.replace(/[?].*/, "") }, bytes),
        "one letter of the signature": (it) => use({ ...it, url: flipSignature(it.url) }, bytes),
        time: async (it) => {
          await made.expire(it);
          return await use(it, bytes);
        },
      };
      for (const [deviation, attempt] of Object.entries(deviations)) {
        const key = newKey();
        const { status } = await attempt(await store.grantUpload(key, content, made.lifetime ?? minute));
        // A digest that is not in the URL can't be changed there: then the request is the granted one.
        if (deviation === "digest in the URL" && status < 300) continue;
        assert.ok(status >= 400 && status < 500, `${deviation}: status ${status}`);
        assert.equal(await store.size(key, never), null, deviation);
        assert.equal(await store.size(key.replace("/object", "/another"), never), null, deviation);
      }
    });

    test("E18: a download capability gives its object and refuses every deviation", async () => {
      const bytes = randomBytes(150_000);
      const key = newKey();
      const neighbour = key.replace("/object", "/another");
      await put(key, bytes);
      await put(neighbour, bytes);
      const capability = await store.grantDownload(key, contentOf(bytes), made.lifetime ?? minute);
      assert.equal(capability.method, "GET");
      const got = await use(capability);
      assert.deepEqual([got.status, got.headers["content-length"]], [200, "150000"]);
      assert.deepEqual(got.body, bytes);

      const deviations = [
        () => use({ ...capability, url: capability.url.replace("/object?", "/another?") }),
        () => use({ ...capability, method: "PUT" }, bytes),
        () => sendHttp("DELETE", capability.url, capability.headers),
        () => use({ ...capability, url: flipSignature(capability.url) }),
        async () => {
          await made.expire(capability);
          return await use(capability);
        },
      ];
      for (const deviation of deviations) {
        const { status } = await deviation();
        assert.ok(status >= 400 && status < 500, `status ${status}`);
      }
      assert.equal(await store.verify(key, contentOf(bytes), never), true);
    });

    test("S10: no method runs while a transition is open", async () => {
      const content = contentOf(Buffer.alloc(0));
      const calls: Record<keyof BlobStore, () => unknown> = {
        put: () => put("a", Buffer.alloc(0)),
        size: () => store.size("a", never),
        verify: () => store.verify("a", content, never),
        read: () => store.read("a", content, never),
        remove: () => store.remove("a", never),
        list: () => store.list("a/", never),
        grantUpload: () => store.grantUpload("a", content, minute),
        grantDownload: () => store.grantDownload("a", content, minute),
      };
      for (const [method, call] of Object.entries(calls)) {
        await assert.rejects(
          insideTransition("a test", async () => {
            await call();
          }),
          /while the transition "a test" was open/,
          method,
        );
      }
      assert.equal(await store.size("a", never), null);
    });
  });
}

const refusal = (reason: BlobRefusal["reason"]) => (error: unknown) =>
  error instanceof BlobRefusal && error.reason === reason;

function use({ method, url, headers }: Capability, body?: Uint8Array): Promise<HttpAnswer> {
  return sendHttp(method, url, headers, body);
}

function withLength(capability: Capability, length: number): Capability {
  return { ...capability, headers: { ...capability.headers, "content-length": String(length) } };
}

function flipSignature(url: string): string {
  return url.replace(
    /(signature=.{5})(.)/i,
    (_, head: string, letter: string) => head + (letter === "A" ? "B" : "A"),
  );
}
