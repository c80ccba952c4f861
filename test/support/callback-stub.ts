import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { type DirectoryBlobs, directoryBlobs } from "../../src/blobs/directory/directory-blobs.ts";
import type { BlobContent, Capability } from "../../src/core/blob.port.ts";
import { HoldfastError, isHoldfastError } from "../../src/core/errors.ts";
import { formatInstant, seconds } from "../../src/core/time.ts";

interface StubObject {
  readonly content: BlobContent;
  readonly mediaType: string;
  complete: boolean;
}

interface StubPhase {
  readonly name: string;
  readonly kind: "source" | "compile" | "publish";
}

/**
 * The server's side of docs/reference/sandbox-contract.md in memory, over real blobs, for one attempt. What it
 * refuses, the real one refuses too; it has no fence, no clock and no database.
 */
export class CallbackStub {
  readonly token = randomBytes(24).toString("base64url");
  readonly progress: string[] = [];
  readonly pins = new Map<string, string>();
  readonly results = new Map<string, unknown>();
  readonly objects = new Map<string, StubObject>();
  readonly calls: string[] = [];
  artifact: { readonly object: string; readonly files: unknown } | undefined;
  phase: StubPhase = { name: "source", kind: "source" };
  /** Answers to give instead of the real ones, first come, first served. */
  readonly faults: ((request: IncomingMessage, response: ServerResponse) => void)[] = [];
  sources: Readonly<Record<string, { repository: string; ref: string }>> = {};
  #origin = "";
  #close: () => Promise<void> = async () => undefined;
  #blobs: DirectoryBlobs | undefined;

  static async start(): Promise<CallbackStub> {
    const stub = new CallbackStub();
    const directory = await mkdtemp(join(tmpdir(), "holdfast-stub-"));
    const server = createServer((request, response) => void stub.#serve(request, response));
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    stub.#origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    stub.#blobs = directoryBlobs({ directory, publicUrl: stub.#origin, keys: [randomBytes(32)] });
    stub.#close = async () => {
      server.closeAllConnections();
      server.close();
      await rm(directory, { recursive: true, force: true });
    };
    return stub;
  }

  close = () => this.#close();

  get blobs(): DirectoryBlobs {
    assert.ok(this.#blobs);
    return this.#blobs;
  }

  env(): Record<string, string> {
    return {
      HOLDFAST_CALLBACK_URL: `${this.#origin}/callback/v1`,
      HOLDFAST_TOKEN: this.token,
      HOLDFAST_JOB: "019a0000-0000-7000-8000-000000000000",
      HOLDFAST_ATTEMPT: "1",
      HOLDFAST_PHASE: this.phase.name,
      HOLDFAST_SANDBOX: "019a0000-0000-7000-8000-000000000001",
      HOLDFAST_SOURCES: JSON.stringify(this.sources),
      ...(this.phase.kind === "source"
        ? {}
        : { HOLDFAST_PINS: JSON.stringify(Object.fromEntries(this.pins)) }),
    };
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.calls.push(`${request.method} ${(request.url ?? "").replace(/\?.*/, "")}`);
    const fault = this.faults.shift();
    if (fault !== undefined) {
      fault(request, response);
      return;
    }
    await this.answer(request, response);
  }

  /** The true answer: faults can pass a request on to it. */
  async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (await this.blobs.handle(request, response)) return;
    try {
      const answer = await this.#call(request);
      response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
    } catch (error) {
      const problem = isHoldfastError(error) ? error : new HoldfastError("internal", String(error));
      const document = { code: problem.code, detail: problem.detail, status: problem.entry.status };
      response.writeHead(problem.entry.status, { "content-type": "application/problem+json" });
      response.end(JSON.stringify(document));
    }
  }

  async #call(request: IncomingMessage): Promise<unknown> {
    if (request.headers.authorization !== `Bearer ${this.token}`) {
      throw new HoldfastError("unauthenticated", "The token is not this sandbox's.");
    }
    if (request.method !== "POST") throw new HoldfastError("method_not_allowed", "Use POST.");
    const body = JSON.parse(Buffer.concat(await request.toArray()).toString()) as Record<string, unknown>;
    const [, , , call = "", ...rest] = (request.url ?? "").split("/").map(decodeURIComponent);
    switch (`${call}/${rest.at(-1) ?? ""}`) {
      case "progress/":
        return this.#progress(body);
      case "pins/":
        return this.#pins(body);
      case "result/":
        return this.#once("result", this.results.get(this.phase.name), body, () =>
          this.results.set(this.phase.name, body),
        );
      case "artifact/":
        return this.#artifact(body);
      case "objects/upload":
        return await this.#upload(rest[0] ?? "", body);
      case "objects/complete":
        return await this.#complete(rest[0] ?? "", body);
      case "objects/download":
        return await this.#download(`${rest[0]}/${rest[1]}`);
      default:
        throw new HoldfastError("not_found", "There is no such call.");
    }
  }

  #progress({ message, percent }: Record<string, unknown>): object {
    valid(typeof message === "string" && message.length >= 1 && message.length <= 1000, "message");
    valid(percent === undefined || (Number.isInteger(percent) && Number(percent) <= 100), "percent");
    if (this.progress.at(-1) !== message) this.progress.push(String(message));
    return {};
  }

  #pins({ pins }: Record<string, unknown>): object {
    this.#only("source");
    valid(typeof pins === "object" && pins !== null, "pins");
    const given = Object.entries(pins as object).map(([name, commit]) => [name, String(commit)] as const);
    for (const [name, commit] of given) {
      valid(name in this.sources && /^[0-9a-f]{40}$/.test(commit), `pin ${name}`);
      const stored = this.pins.get(name);
      if (stored !== undefined && stored !== commit) throw conflict(`The pin of ${name} is another.`);
    }
    for (const [name, commit] of given) this.pins.set(name, commit);
    return {
      pins: Object.fromEntries(this.pins),
      missing: Object.keys(this.sources).filter((name) => !this.pins.has(name)),
    };
  }

  #once(what: string, stored: unknown, given: unknown, store: () => void): object {
    if (stored !== undefined && !isDeepStrictEqual(stored, given)) throw conflict(`The ${what} is another.`);
    store();
    return {};
  }

  #artifact(body: Record<string, unknown>): object {
    this.#only("publish");
    const { object, files } = body;
    valid(typeof object === "string" && Array.isArray(files) && files.length <= 5000, "artifact");
    const found = this.objects.get(`${this.phase.name}/${String(object)}`);
    if (found?.complete !== true) throw new HoldfastError("not_found", "There is no such object.");
    const declared = { object: String(object), files };
    this.#once("artifact", this.artifact, declared, () => {
      this.artifact = declared;
    });
    return { object, bytes: Number(found.content.bytes), sha256: found.content.sha256 };
  }

  async #upload(name: string, body: Record<string, unknown>): Promise<object> {
    const content = contentOf(body);
    valid(/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/.test(name), "name");
    const key = `${this.phase.name}/${name}`;
    const stored = this.objects.get(key);
    if (stored !== undefined && !isDeepStrictEqual(stored.content, content)) {
      throw conflict("The object is promised with other content.");
    }
    const { media_type: mediaType = "application/octet-stream" } = body;
    valid(typeof mediaType === "string", "media_type");
    if (stored === undefined)
      this.objects.set(key, { content, mediaType: String(mediaType), complete: false });
    return capability(await this.blobs.grantUpload(key, content, seconds(60)));
  }

  async #complete(name: string, body: Record<string, unknown>): Promise<object> {
    const key = `${this.phase.name}/${name}`;
    const stored = this.objects.get(key);
    if (stored === undefined) throw new HoldfastError("not_found", "Nothing was promised under this name.");
    if (!isDeepStrictEqual(stored.content, contentOf(body))) throw conflict("Other content was promised.");
    if (!(await this.blobs.verify(key, stored.content, new AbortController().signal))) {
      throw new HoldfastError("content_mismatch", "The store has no such bytes.");
    }
    stored.complete = true;
    return { bytes: Number(stored.content.bytes), sha256: stored.content.sha256 };
  }

  async #download(key: string): Promise<object> {
    const stored = this.objects.get(key);
    if (stored?.complete !== true) throw new HoldfastError("not_found", "There is no such object.");
    const granted = await this.blobs.grantDownload(key, stored.content, seconds(60));
    const { bytes, sha256 } = stored.content;
    return { ...capability(granted), bytes: Number(bytes), sha256, media_type: stored.mediaType };
  }

  #only(kind: StubPhase["kind"]): void {
    if (this.phase.kind !== kind) throw conflict(`This is for phases of kind ${kind}.`);
  }
}

const conflict = (detail: string) => new HoldfastError("conflict", detail);

function valid(condition: boolean, field: string): void {
  if (!condition) throw new HoldfastError("invalid_request", `${field} is not valid.`);
}

function contentOf({ bytes, sha256 }: Record<string, unknown>): BlobContent {
  valid(Number.isSafeInteger(bytes) && Number(bytes) >= 0, "bytes");
  valid(typeof sha256 === "string" && /^[0-9a-f]{64}$/.test(sha256), "sha256");
  return { bytes: BigInt(Number(bytes)), sha256: String(sha256) };
}

function capability({ method, url, headers, expiresAt }: Capability): object {
  return { method, url, headers, expires_at: formatInstant(expiresAt) };
}
