import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { createReadStream, createWriteStream } from "node:fs";
import { mkdtemp, rm, truncate, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { type Signer, verdictOf } from "./signature.ts";

interface StoredObject {
  readonly file: string;
  readonly bytes: number;
  readonly type: string;
}

/** A request as it came, for what a test asks about requests. */
export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
}

/**
 * What Holdfast uses of S3, over a temporary folder: one bucket in path and virtual-host style, signed requests,
 * digests of bodies, pages of a listing. Everything else, public access and conditions included, is refused.
 */
export interface S3Server {
  readonly endpoint: string;
  readonly bucket: string;
  readonly credentials: { readonly accessKeyId: string; readonly secretAccessKey: string };
  readonly region: string;
  readonly seen: SeenRequest[];
  /** Milliseconds by which its clock is ahead. */
  ahead: number;
  /** While it is set, every request is answered with this status. */
  broken: number | null;
  damage(key: string, bytes: Uint8Array): Promise<void>;
  shorten(key: string, bytes: number): Promise<void>;
  close(): Promise<void>;
}

const pageSize = 3;

export async function startS3(): Promise<S3Server> {
  const folder = await mkdtemp(join(tmpdir(), "holdfast-s3-"));
  const objects = new Map<string, StoredObject>();
  const bucket = "artifacts";
  const credentials = { accessKeyId: "KEYID", secretAccessKey: randomBytes(20).toString("hex") };
  const signer: Signer = { ...credentials, region: "eu-test-1", now: () => Date.now() + state.ahead };
  const server = createServer((request, response) => {
    answer(request, response).catch((error: unknown) => {
      // A body that never came whole leaves nobody to answer.
      if (error instanceof Problem) refuse(response, error);
      else response.destroy();
    });
  });

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { method = "", headers } = request;
    const url = new URL(request.url ?? "/", "http://any");
    state.seen.push({ method, path: url.pathname, headers });
    if (state.broken !== null) throw new Problem(state.broken, "InternalError");
    const verdict = verdictOf(request, signer);
    if (!verdict.signed) throw new Problem(403, verdict.code);
    const key = keyOf(url, headers.host ?? "", bucket);
    if (key === null) throw new Problem(404, "NoSuchBucket");
    if (key === "" && method === "GET" && url.searchParams.get("list-type") === "2") {
      return list(url.searchParams, response);
    }
    const found = objects.get(key);
    switch (method) {
      case "PUT":
        return receive(request, response, key, verdict.payload);
      case "GET":
      case "HEAD":
        if (found === undefined) throw new Problem(404, "NoSuchKey");
        response.writeHead(200, { "content-length": found.bytes, "content-type": found.type, etag: '"x"' });
        if (method === "HEAD") response.end();
        else await pipeline(createReadStream(found.file), response);
        return;
      case "DELETE":
        objects.delete(key);
        if (found !== undefined) await rm(found.file);
        response.writeHead(204).end();
        return;
      default:
        throw new Problem(405, "MethodNotAllowed");
    }
  }

  async function receive(request: IncomingMessage, response: ServerResponse, key: string, payload: string) {
    const { headers } = request;
    const conditions = ["if-none-match", "if-match", "x-amz-acl", "x-amz-tagging"];
    if (conditions.some((name) => headers[name] !== undefined)) throw new Problem(501, "NotImplemented");
    if (headers["content-length"] === undefined) throw new Problem(411, "MissingContentLength");
    const file = join(folder, randomBytes(12).toString("hex"));
    const hash = createHash("sha256");
    let bytes = 0;
    const digesting = new Transform({
      transform(chunk: Buffer, _encoding, done) {
        hash.update(chunk);
        bytes += chunk.length;
        done(null, chunk);
      },
    });
    try {
      await pipeline(request, digesting, createWriteStream(file));
      const digest = hash.digest();
      if (payload !== "UNSIGNED-PAYLOAD" && payload !== digest.toString("hex")) {
        throw new Problem(400, "XAmzContentSHA256Mismatch");
      }
      const checksum = headers["x-amz-checksum-sha256"];
      if (checksum !== undefined && checksum !== digest.toString("base64"))
        throw new Problem(400, "BadDigest");
    } catch (error) {
      await rm(file, { force: true });
      throw error;
    }
    const replaced = objects.get(key);
    objects.set(key, { file, bytes, type: headers["content-type"] ?? "binary/octet-stream" });
    if (replaced !== undefined) await rm(replaced.file, { force: true });
    response.writeHead(200, { etag: '"x"' }).end();
  }

  function list(query: URLSearchParams, response: ServerResponse): void {
    const after = query.get("continuation-token") ?? "";
    const keys = [...objects.keys()].filter(
      (key) => key.startsWith(query.get("prefix") ?? "") && key > after,
    );
    const page = keys.sort().slice(0, pageSize);
    const contents = page.map((key) => {
      return `<Contents><Key>${key}</Key><Size>${objects.get(key)?.bytes ?? 0}</Size></Contents>`;
    });
    const more = keys.length > page.length;
    const next = more ? `<NextContinuationToken>${page.at(-1) ?? ""}</NextContinuationToken>` : "";
    response.writeHead(200, { "content-type": "application/xml" });
    response.end(
      `<ListBucketResult><IsTruncated>${more}</IsTruncated>${next}${contents.join("")}</ListBucketResult>`,
    );
  }

  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const fileOf = (key: string) => objects.get(key)?.file ?? "";
  const state: S3Server = {
    endpoint: `http://127.0.0.1:${port}`,
    bucket,
    credentials,
    region: signer.region,
    seen: [],
    ahead: 0,
    broken: null,
    damage: (key, bytes) => writeFile(fileOf(key), bytes),
    shorten: (key, bytes) => truncate(fileOf(key), bytes),
    async close() {
      server.closeAllConnections();
      server.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
  return state;
}

class Problem extends Error {
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string) {
    super(code);
    this.status = status;
    this.code = code;
  }
}

function refuse(response: ServerResponse, { status, code }: Problem): void {
  if (response.headersSent || response.destroyed) return;
  const body = `<?xml version="1.0"?><Error><Code>${code}</Code><Message>refused</Message></Error>`;
  // Nothing of a refused body is read, so the connection can't be used again.
  response.writeHead(status, { "content-type": "application/xml", connection: "close" }).end(body);
}

/** Null for another bucket. */
function keyOf(url: URL, host: string, bucket: string): string | null {
  const path = decodeURIComponent(url.pathname.slice(1));
  if (host.startsWith(`${bucket}.`)) return path;
  if (path === bucket) return "";
  return path.startsWith(`${bucket}/`) ? path.slice(bucket.length + 1) : null;
}
