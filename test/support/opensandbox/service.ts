import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { marks } from "../../../src/runtimes/opensandbox/marks.ts";
import type { SeenRequest } from "../kubernetes/api-call.ts";
import { HeldRequests } from "../kubernetes/held-requests.ts";
import { notFound, Refused, schemaError, sendJson, sendRefusal, serviceError } from "./answer.ts";
import { Box, type CreateInput } from "./box.ts";
import type { Cut } from "./exec-daemon.ts";
import { verbOf } from "./verb.ts";

/** `path` is without `/v1`; of a daemon it is `/sandboxes/ID/proxy/PORT/…`. */
export type { SeenRequest } from "../kubernetes/api-call.ts";

/** What goes wrong with the next requests that match, each fault `times` times. */
export interface Fault {
  readonly matches: (request: SeenRequest) => boolean;
  readonly times: number;
  readonly does:
    | {
        readonly kind: "status";
        readonly code: number;
        readonly body?: object | string;
        readonly retryAfter?: number;
      }
    /** The connection goes before anything happens. */
    | { readonly kind: "reset" }
    /** It happens, and the answer is lost. */
    | { readonly kind: "lost" }
    | { readonly kind: "slow"; readonly ms: number }
    /** A create commits, and the service answers that the pod was not ready in time; it deletes it, or can't. */
    | { readonly kind: "late"; readonly deletes: boolean; readonly visible: boolean }
    | { readonly kind: "cut"; readonly at: Cut };
}

const labelValue = /^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$/;
const execPort = "44772";
const command = /\/proxy\/44772\/command$/;

/**
 * An OpenSandbox service with the daemons of its sandboxes, on loopback, over plain HTTP, as its source was read. It
 * leaves out images, networks, pausing, snapshots and limits of CPU and memory.
 */
export class OpenSandboxDouble {
  readonly boxes = new Map<string, Box>();
  readonly requests: SeenRequest[] = [];
  readonly held = new HeldRequests();
  /** Wanted in `OPEN-SANDBOX-API-KEY`, if set. */
  apiKey: string | null = null;
  /** Wanted by each new sandbox's daemon, and told with its endpoint. */
  daemonToken: string | null = null;
  /** How long a deleted sandbox is still shown. */
  deleteShownMs = 0;
  /** Whether the pod of a deleted sandbox goes with it, or runs on until `settle`. */
  podsLinger = false;
  /** Before a page is answered: for who changes the list between two pages. */
  onPage: (page: number) => void = () => undefined;
  /** In the environment of every command. */
  readonly environment: Record<string, string> = {};
  #faults: { readonly fault: Fault; left: number }[] = [];
  #clockMs = 0;
  #lastCreated = 0;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  static async start(): Promise<OpenSandboxDouble> {
    const service = new OpenSandboxDouble();
    service.#server.listen(0, "127.0.0.1");
    await once(service.#server, "listening");
    return service;
  }

  private constructor() {
    this.#server = createServer((request, response) => void this.#serve(request, response));
    this.#server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on("error", () => undefined);
      socket.once("close", () => this.#sockets.delete(socket));
    });
  }

  get url(): string {
    return `http://${this.#host()}`;
  }

  fail(fault: Fault): void {
    this.#faults.push({ fault, left: fault.times });
  }

  heal(): void {
    this.#faults = [];
    this.podsLinger = false;
    this.deleteShownMs = 0;
    this.onPage = () => undefined;
  }

  box(id: string): Box {
    const box = this.boxes.get(id);
    if (box === undefined) throw new Error(`there is no sandbox ${id}`);
    return box;
  }

  /** Time passes on the service's clock: what has come to its end is deleted. */
  pass(ms: number): void {
    this.#clockMs += ms;
    this.#expire();
  }

  /** Pods that lingered after their deletion are gone now. */
  settle(): void {
    for (const box of this.boxes.values()) if (!box.known) this.#destroy(box);
  }

  async close(): Promise<void> {
    for (const box of this.boxes.values()) box.destroy();
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #now(): number {
    return Date.now() + this.#clockMs;
  }

  #host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", "http://localhost");
    const path = url.pathname.replace(/^\/v1(?=\/)/, "");
    try {
      const body = await readBody(request);
      const seen = this.#seen(request.method ?? "", path, url.searchParams, body);
      this.requests.push(seen);
      response.once("close", () => this.held.answered(seen, response.statusCode));
      if (!(await this.held.pass(seen, "received"))) {
        request.socket.destroy();
        return;
      }
      const fault = this.#takeFault(seen);
      if (fault?.kind === "slow") await delay(fault.ms);
      if (fault?.kind === "reset") {
        request.socket.destroy();
        return;
      }
      if (fault?.kind === "status") {
        const refused = new Refused(fault.code, fault.body ?? { code: "SERVER::BUSY", message: "injected" });
        sendRefusal(response, refused, fault.retryAfter);
        return;
      }
      response.setHeader("x-request-id", request.headers["x-request-id"] ?? "double");
      response.setHeader("date", new Date(this.#now()).toUTCString());
      if (fault?.kind === "lost") {
        response.end = () => response;
        response.write = () => true;
      }
      if (!command.test(path)) this.#holdAnswer(seen, response);
      this.#route(seen, request, response, fault);
      if (fault?.kind === "lost") setTimeout(() => request.socket.destroy(), 20);
    } catch (error) {
      if (error instanceof Refused) sendRefusal(response, error);
      else request.socket.destroy();
    }
  }

  #seen(method: string, path: string, query: URLSearchParams, body: string): SeenRequest {
    const [, , id = ""] = path.split("/");
    const about = this.boxes.get(id)?.metadata[marks.tenant];
    const made =
      method === "POST" && id === "" ? /"holdfast.dev\/tenant":"([^"]*)"/.exec(body)?.[1] : undefined;
    return { method, path, query, body, verb: verbOf(method, path, body), tenant: about ?? made ?? "" };
  }

  /** What was done is answered when nobody holds it up. */
  #holdAnswer(seen: SeenRequest, response: ServerResponse): void {
    const end = response.end.bind(response);
    response.end = ((body?: string) => {
      void this.held.pass(seen, "done").then((passes) => {
        if (passes) end(body);
        else response.socket?.destroy();
      });
      return response;
    }) as typeof response.end; // called with a text or nothing here
  }

  #takeFault(seen: SeenRequest): Fault["does"] | null {
    const found = this.#faults.find(({ fault, left }) => left > 0 && fault.matches(seen));
    if (found === undefined) return null;
    found.left -= 1;
    return found.fault.does;
  }

  #route(
    seen: SeenRequest,
    request: IncomingMessage,
    response: ServerResponse,
    fault: Fault["does"] | null,
  ): void {
    const { method, path, query, body } = seen;
    const proxied = /^\/sandboxes\/([^/]+)\/proxy\/(\d+)(\/.*)$/.exec(path);
    if (proxied !== null) {
      // No authentication here: whoever reaches it speaks to the daemon.
      const box = this.boxes.get(proxied[1] ?? "");
      if (box === undefined || !box.visible || !box.known) throw notFound(proxied[1] ?? "");
      if (proxied[2] !== execPort) throw new Refused(502, "Bad Gateway");
      const token = request.headers["x-execd-access-token"];
      const cut = fault?.kind === "cut" ? fault.at : null;
      const inner = { method, path: proxied[3] ?? "/", query };
      const ready = () => this.held.pass(seen, "done");
      box.daemon.handle(inner, typeof token === "string" ? token : undefined, body, response, { cut, ready });
      return;
    }
    this.#authenticate(request);
    this.#expire();
    const [, collection, id = "", verb = "", port = ""] = path.split("/");
    if (collection !== "sandboxes") throw new Refused(404, { detail: "Not Found" });
    if (id === "") {
      if (method === "POST") this.#create(body, response, fault);
      else this.#list(query, response);
      return;
    }
    const box = this.#find(id);
    switch (`${method} ${verb}`) {
      case "GET ":
        return sendJson(response, 200, box.shown());
      case "DELETE ":
        this.#delete(box);
        response.writeHead(204).end();
        return;
      case "PATCH metadata": {
        box.metadata = { ...box.metadata, ...checkMetadata(JSON.parse(body)) };
        return sendJson(response, 200, box.shown());
      }
      case "POST renew-expiration":
        return this.#renew(box, JSON.parse(body) as { expiresAt?: string }, response);
      case "GET endpoints":
        return sendJson(response, 200, {
          endpoint: `${this.#host()}/sandboxes/${box.id}/proxy/${port}`,
          headers: box.daemon.token === null ? {} : { "X-EXECD-ACCESS-TOKEN": box.daemon.token },
        });
      default:
        throw new Refused(405, { detail: "Method Not Allowed" });
    }
  }

  #authenticate({ headers }: IncomingMessage): void {
    if (this.apiKey === null) return;
    const key = headers["open-sandbox-api-key"];
    if (key === undefined)
      throw serviceError(401, "MISSING_API_KEY", "Authentication credentials are missing");
    if (key !== this.apiKey)
      throw serviceError(401, "INVALID_API_KEY", "Authentication credentials are invalid");
  }

  #create(body: string, response: ServerResponse, fault: Fault["does"] | null): void {
    // Seconds, as Kubernetes has them: several of one second are common.
    this.#lastCreated = Math.max(this.#lastCreated, Math.floor(this.#now() / 1000) * 1000);
    const box = new Box(readCreate(body), this.#lastCreated, this.environment);
    box.daemon.token = this.daemonToken;
    this.boxes.set(box.id, box);
    if (fault?.kind === "late") {
      box.visible = fault.visible;
      if (fault.deletes) this.#delete(box);
      throw serviceError(504, "KUBERNETES::POD_READY_TIMEOUT", "Pod was not ready within 60 seconds");
    }
    sendJson(response, 202, box.shown());
  }

  #list(query: URLSearchParams, response: ServerResponse): void {
    const page = Number(query.get("page") ?? 1);
    const pageSize = Number(query.get("pageSize") ?? 20);
    if (pageSize > 200) throw schemaError("pageSize", "Input should be less than or equal to 200");
    this.onPage(page);
    const wanted = new URLSearchParams(query.get("metadata") ?? "");
    const items = [...this.boxes.values()]
      .filter((box) => box.known && box.visible)
      .filter((box) => [...wanted].every(([key, value]) => box.metadata[key] === value))
      .toReversed();
    const totalPages = Math.ceil(items.length / pageSize);
    sendJson(response, 200, {
      items: items.slice((page - 1) * pageSize, page * pageSize).map((box) => box.shown()),
      pagination: { page, pageSize, totalItems: items.length, totalPages, hasNextPage: page < totalPages },
    });
  }

  #renew(box: Box, { expiresAt = "" }: { readonly expiresAt?: string }, response: ServerResponse): void {
    const asked = Date.parse(expiresAt);
    if (Number.isNaN(asked)) throw schemaError("expiresAt", "Input should be a valid datetime");
    if (asked <= this.#now())
      throw serviceError(400, "SANDBOX::INVALID_PARAMETER", "expiresAt is in the past");
    if (box.expiresAt === null) throw serviceError(409, "SANDBOX::CONFLICT", "sandbox has no expiration");
    box.expiresAt = asked;
    sendJson(response, 200, { expiresAt: new Date(asked).toISOString() });
  }

  #find(id: string): Box {
    const box = this.boxes.get(id);
    if (box === undefined || !box.visible || !box.known) throw notFound(id);
    return box;
  }

  /** Never shown as stopping: it is there, and then it is not. */
  #delete(box: Box): void {
    if (this.deleteShownMs > 0) {
      setTimeout(() => this.#forget(box), this.deleteShownMs).unref();
      return;
    }
    this.#forget(box);
  }

  #forget(box: Box): void {
    box.known = false;
    if (!this.podsLinger) this.#destroy(box);
  }

  #destroy(box: Box): void {
    box.destroy();
    this.boxes.delete(box.id);
  }

  #expire(): void {
    for (const box of this.boxes.values()) {
      if (box.expiresAt !== null && box.expiresAt <= this.#now() && box.known) this.#forget(box);
    }
  }
}

function readCreate(body: string): CreateInput {
  const value = JSON.parse(body) as Record<string, unknown>; // as a client sent it; each member is checked
  const { image, snapshotId, entrypoint, resourceLimits, timeout = null, env = {}, metadata = {} } = value;
  if (typeof resourceLimits !== "object" || resourceLimits === null) {
    throw schemaError("resourceLimits", "Field required");
  }
  if ((image === undefined) === (snapshotId === undefined)) {
    throw serviceError(400, "SANDBOX::INVALID_PARAMETER", "exactly one of image and snapshotId is required");
  }
  if (image !== undefined && (!Array.isArray(entrypoint) || entrypoint.length === 0)) {
    throw schemaError("entrypoint", "entrypoint is required with an image");
  }
  if (timeout !== null && (typeof timeout !== "number" || timeout < 60)) {
    throw schemaError("timeout", "Input should be greater than or equal to 60");
  }
  return {
    image,
    entrypoint: entrypoint as readonly string[],
    timeout,
    env: env as Record<string, string>,
    metadata: checkMetadata(metadata),
  };
}

function checkMetadata(value: unknown): Record<string, string> {
  const metadata = value as Record<string, string>; // as a client sent it; each value is checked
  for (const [key, text] of Object.entries(metadata)) {
    if (key.startsWith("opensandbox.io/") || typeof text !== "string" || !labelValue.test(text)) {
      throw serviceError(400, "SANDBOX::INVALID_METADATA_LABEL", `metadata ${key} is not a label`);
    }
  }
  return metadata;
}

async function readBody(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(Buffer.from(part));
  return Buffer.concat(parts).toString("utf8");
}
