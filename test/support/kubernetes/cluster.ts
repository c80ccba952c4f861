import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { KubernetesConnection } from "../../../src/runtimes/kubernetes/connection.ts";
import { type SeenRequest, seenRequest } from "./api-call.ts";
import { HeldRequests } from "./held-requests.ts";
import { Kubelet } from "./kubelet.ts";
import { streamLog } from "./log-stream.ts";
import { PodLists } from "./pod-list.ts";
import { type PodObject, shown } from "./pod-object.ts";
import { type DeleteInput, PodStore } from "./pod-store.ts";
import { badRequest, StatusError } from "./status.ts";
import { streamWatch, type WatchFaults } from "./watch-stream.ts";

/** What goes wrong with the next requests that match, each fault `times` times. */
export interface Fault {
  readonly matches: (request: SeenRequest) => boolean;
  readonly times: number;
  readonly does:
    | {
        readonly kind: "status";
        readonly code: number;
        readonly retryAfter?: number;
        readonly message?: string;
      }
    /** The connection goes before anything happens. */
    | { readonly kind: "reset" }
    /** It happens, and the answer is lost. */
    | { readonly kind: "lost" }
    | { readonly kind: "slow"; readonly ms: number };
}

const bodyBytesMax = 3 * 1024 * 1024;

/**
 * An API server for pods, with a scheduler and one node, on loopback, over plain HTTP. It answers as a 1.36 API
 * server was recorded to answer; `test/fixtures/kubernetes` holds the recordings and a test replays them. What
 * it leaves out: other kinds, other verbs, several namespaces' policies, rights, TLS.
 */
export class Cluster {
  readonly store = new PodStore();
  readonly lists = new PodLists(this.store);
  readonly kubelet = new Kubelet(this.store);
  readonly watches: WatchFaults = { copies: 1, delayMs: 0, bookmarkMs: 60_000 };
  readonly requests: SeenRequest[] = [];
  readonly held = new HeldRequests();
  /** How far the server's clock is ahead of ours. */
  clockAheadMs = 0;
  openWatches = 0;
  /** Node objects by name, for those who may read them; null: nobody may, as the least role has it. */
  nodes: ReadonlyMap<string, object> | null = null;
  /** Wanted from every request, if set. */
  token: string | null = null;
  #faults: { readonly fault: Fault; left: number }[] = [];
  #server: Server;
  #port = 0;
  readonly #sockets = new Set<Socket>();

  static async start(): Promise<Cluster> {
    const cluster = new Cluster();
    await cluster.#listen();
    return cluster;
  }

  private constructor() {
    this.#server = this.#newServer();
  }

  connection(token?: string): KubernetesConnection {
    return {
      server: `http://127.0.0.1:${this.#port}`,
      credentials: () => Promise.resolve(token === undefined ? {} : { authorization: `Bearer ${token}` }),
    };
  }

  fail(fault: Fault): void {
    this.#faults.push({ fault, left: fault.times });
  }

  heal(): void {
    this.#faults = [];
  }

  /** SIGKILL of the API server: bodies are cut off, connections refused until it is up, versions too old. */
  async restart(downMs = 0): Promise<void> {
    await this.#down();
    this.store.restart();
    this.lists.forget();
    await delay(downMs);
    this.#server = this.#newServer();
    await this.#listen();
  }

  async close(): Promise<void> {
    await this.kubelet.close();
    await this.#down();
  }

  #newServer(): Server {
    const server = createServer((request, response) => void this.#serve(request, response));
    server.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
    return server;
  }

  async #listen(): Promise<void> {
    this.#server.listen(this.#port, "127.0.0.1");
    await once(this.#server, "listening");
    this.#port = (this.#server.address() as AddressInfo).port;
  }

  async #down(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "/", "http://localhost");
    let seen: SeenRequest | null = null;
    response.setHeader("date", new Date(Date.now() + this.clockAheadMs).toUTCString());
    try {
      const body = await readBody(request);
      seen = seenRequest(request.method ?? "", url, body, (name) => this.#find(url.pathname, name));
      this.requests.push(seen);
      const fault = this.#takeFault(seen);
      if (fault?.kind === "slow") await delay(fault.ms);
      if (fault?.kind === "reset" || !(await this.held.pass(seen, "received"))) {
        request.socket.destroy();
        return;
      }
      if (fault?.kind === "status") throw faultStatus(fault);
      this.#authenticate(request);
      await this.#route(seen, request, response, fault?.kind === "lost");
    } catch (error) {
      // Who asked is gone, as in a process that was killed.
      if (request.errored !== null) return;
      if (!(error instanceof StatusError)) throw error;
      if (seen !== null) this.held.answered(seen, error.code);
      sendJson(response, error.code, error.body, error.headers);
    }
  }

  #node(name: string): object {
    const details = { name, kind: "nodes" };
    if (this.nodes === null) {
      const words = `nodes "${name}" is forbidden: User "system:serviceaccount:default:test" cannot get resource "nodes" in API group "" at the cluster scope`;
      throw new StatusError(403, "Forbidden", words, details);
    }
    const node = this.nodes.get(name);
    if (node === undefined) throw new StatusError(404, "NotFound", `nodes "${name}" not found`, details);
    return node;
  }

  #find(path: string, name: string): PodObject | undefined {
    const [, namespace = ""] = /\/namespaces\/([^/]+)\//.exec(path) ?? [];
    return this.store.all(namespace).find(({ metadata }) => metadata.name === name);
  }

  #authenticate({ headers }: IncomingMessage): void {
    if (this.token === null || headers.authorization === `Bearer ${this.token}`) return;
    throw new StatusError(401, "Unauthorized", "Unauthorized");
  }

  #takeFault(seen: SeenRequest): Fault["does"] | null {
    const found = this.#faults.find(({ fault, left }) => left > 0 && fault.matches(seen));
    if (found === undefined) return null;
    found.left -= 1;
    return found.fault.does;
  }

  async #route(
    seen: SeenRequest,
    request: IncomingMessage,
    response: ServerResponse,
    lost: boolean,
  ): Promise<void> {
    const node = /^\/api\/v1\/nodes\/([^/]+)$/.exec(seen.path)?.[1];
    if (node !== undefined && seen.method === "GET") {
      sendJson(response, 200, this.#node(node));
      return;
    }
    const match = /^\/api\/v1\/namespaces\/([^/]+)\/pods(?:\/([^/]+))?(\/log)?$/.exec(seen.path);
    if (match === null) {
      response.writeHead(404, { "content-type": "text/plain" }).end("404 page not found\n");
      return;
    }
    const [, namespace = "", name, log] = match;
    const { method, query, body } = seen;
    if (method === "GET" && name === undefined && query.get("watch") === "1") {
      this.openWatches += 1;
      response.once("close", () => {
        this.openWatches -= 1;
      });
      streamWatch(this.store, namespace, query, response, this.watches);
      await this.held.pass(seen, "done");
      return;
    }
    if (method === "GET" && log !== undefined) {
      const pod = this.store.get(namespace, name ?? "");
      streamLog(pod, this.kubelet.container(pod.metadata.uid), query, response);
      await this.held.pass(seen, "done");
      return;
    }
    const answer = this.#answer(seen, namespace, name, request.headers["content-type"] ?? "", body);
    const status = method === "POST" ? 201 : 200;
    const answers = (await this.held.pass(seen, "done")) && !lost;
    this.held.answered(seen, status);
    if (answers) sendJson(response, status, answer);
    else response.socket?.destroy();
  }

  #answer(
    seen: SeenRequest,
    namespace: string,
    name: string | undefined,
    type: string,
    body: string,
  ): object {
    const { method, query } = seen;
    if (name === undefined) {
      if (method === "GET") {
        const list = this.lists.list(namespace, query) as { items: readonly PodObject[] };
        return list;
      }
      if (method === "POST") return shown(this.#create(namespace, query, type, body));
    } else if (method === "GET") return shown(this.store.get(namespace, name));
    else if (method === "PATCH") return shown(this.#patch(namespace, name, type, body));
    else if (method === "DELETE") {
      return shown(this.store.delete(namespace, name, readDelete(body, query)));
    }
    throw new StatusError(
      405,
      "MethodNotAllowed",
      "the server does not allow this method on the requested resource",
    );
  }

  #create(namespace: string, query: URLSearchParams, type: string, body: string): PodObject {
    if (!type.startsWith("application/json")) throw unsupported(createTypes);
    const value = parseJson(body);
    if (value === undefined) {
      throw badRequest(
        `the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: invalid character 'n' looking for beginning of object key string (${body.slice(0, 20)})`,
      );
    }
    return this.store.create(namespace, value, { strict: query.get("fieldValidation") === "Strict" });
  }

  #patch(namespace: string, name: string, type: string, body: string): PodObject {
    const kinds = { "application/json-patch+json": "json", "application/merge-patch+json": "merge" } as const;
    const kind = type in kinds ? kinds[type as keyof typeof kinds] : null;
    if (kind === null) throw new StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {});
    return this.store.patch(namespace, name, parseJson(body), kind);
  }
}

const createTypes =
  "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";

const unsupported = (message: string): StatusError => new StatusError(415, "UnsupportedMediaType", message);

function faultStatus({ code, retryAfter, message }: Fault["does"] & { kind: "status" }): StatusError {
  const reasons: Readonly<Record<number, string>> = {
    403: "Forbidden",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
  };
  const headers = retryAfter === undefined ? {} : { "retry-after": String(retryAfter) };
  return new StatusError(code, reasons[code] ?? "InternalError", message ?? "injected", {}, headers);
}

function readDelete(body: string, query: URLSearchParams): DeleteInput {
  const value = (body === "" ? {} : parseJson(body)) as {
    preconditions?: { uid?: string; resourceVersion?: string };
    gracePeriodSeconds?: number;
  };
  const grace = value.gracePeriodSeconds ?? query.get("gracePeriodSeconds");
  return { ...value.preconditions, ...(grace === null ? {} : { graceSeconds: Number(grace) }) };
}

async function readBody(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(Buffer.from(part));
  const body = Buffer.concat(parts);
  if (body.length > bodyBytesMax) {
    throw new StatusError(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728");
  }
  return body.toString("utf8");
}

function sendJson(
  response: ServerResponse,
  code: number,
  body: object,
  headers: Readonly<Record<string, string>> = {},
): void {
  const common = { "content-type": "application/json", "cache-control": "no-cache, private" };
  response.writeHead(code, { ...common, ...headers }).end(JSON.stringify(body));
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
