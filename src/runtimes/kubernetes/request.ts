import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { ApiError, errorOf, noAnswer } from "./api-error.ts";
import type { KubernetesConnection } from "./connection.ts";

/** What is asked, in the words of a Role. */
export interface ApiCall {
  readonly verb: "create" | "get" | "list" | "watch" | "patch" | "delete";
  readonly resource: "pods" | "pods/log" | "nodes";
}

/** For counting: one a request that was sent, with its status; 0: no answer. */
export type SeenCall = (call: ApiCall, status: number) => void;

export interface ApiRequest extends ApiCall {
  readonly method: "GET" | "POST" | "PATCH" | "DELETE";
  /** Below the server's own path, with its query. */
  readonly path: string;
  readonly body?: unknown;
  readonly contentType?: string;
}

export interface ApiAnswer {
  readonly status: number;
  /** The server's clock in its `Date` header, whole seconds; ours when it sends none. */
  readonly serverTime: number;
  readonly body: string;
}

export interface TransportLimits {
  /** From sending a request to the last byte of its answer; of a stream: to its headers. */
  readonly requestMs: number;
  /** Of an answer that is held in memory. */
  readonly bodyBytesMax: number;
  readonly socketsMax: number;
}

const errorBytesMax = 64 * 1024;

/**
 * HTTP on Node's own client: unlike `fetch` it takes a certificate authority and a client certificate without
 * another package, and it tells the clean end of a chunked body from a truncated one.
 */
export class Transport {
  readonly #connection: KubernetesConnection;
  readonly #limits: TransportLimits;
  readonly #agent: HttpAgent;
  readonly #seen: SeenCall;

  constructor(connection: KubernetesConnection, limits: TransportLimits, seen: SeenCall = () => undefined) {
    this.#seen = seen;
    const { protocol } = new URL(connection.server);
    const options = { keepAlive: true, maxSockets: limits.socketsMax };
    this.#connection = connection;
    this.#limits = limits;
    this.#agent = protocol === "http:" ? new HttpAgent(options) : new HttpsAgent(options);
  }

  /** The whole answer, within the time of a request. Throws `ApiError` for all but 2xx. */
  async call(request: ApiRequest, signal: AbortSignal): Promise<ApiAnswer> {
    const bounded = AbortSignal.any([signal, AbortSignal.timeout(this.#limits.requestMs)]);
    const response = await this.#open(request, bounded, signal);
    const body = await this.#read(request, response, this.#limits.bodyBytesMax, signal);
    const date = Date.parse(response.headers.date ?? "");
    const serverTime = Number.isNaN(date) ? Date.now() : date;
    return { status: response.statusCode ?? 0, serverTime, body };
  }

  /** The answer as it comes, for watches and logs: whoever reads it bounds its silence. 204 has no body. */
  async stream(request: ApiRequest, signal: AbortSignal): Promise<IncomingMessage> {
    const headers = new AbortController();
    const late = new Error(`no answer within ${this.#limits.requestMs} ms`);
    const timer = setTimeout(() => headers.abort(late), this.#limits.requestMs);
    try {
      return await this.#open(request, AbortSignal.any([signal, headers.signal]), signal);
    } finally {
      clearTimeout(timer);
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  async #open(request: ApiRequest, bounded: AbortSignal, outer: AbortSignal): Promise<IncomingMessage> {
    const response = await this.#send(request, bounded, outer);
    const status = response.statusCode ?? 0;
    if (status >= 200 && status < 300) return response;
    const body = await this.#read(request, response, errorBytesMax, outer);
    throw errorOf(describe(request), status, body, response.headers["retry-after"]);
  }

  async #send(request: ApiRequest, bounded: AbortSignal, outer: AbortSignal): Promise<IncomingMessage> {
    outer.throwIfAborted();
    const { authorization, ...tls } = await this.#connection.credentials();
    const url = new URL(this.#connection.server.replace(/\/$/, "") + request.path);
    const body = request.body === undefined ? undefined : JSON.stringify(request.body);
    const headers = {
      accept: "application/json",
      "user-agent": "holdfast",
      ...(authorization === undefined ? {} : { authorization }),
      ...(body === undefined
        ? {}
        : {
            "content-type": request.contentType ?? "application/json",
            "content-length": Buffer.byteLength(body),
          }),
    };
    const options = {
      method: request.method,
      headers,
      agent: this.#agent,
      signal: bounded,
      ...tls,
    };
    const send = url.protocol === "http:" ? httpRequest : httpsRequest;
    return new Promise((resolve, reject) => {
      let answered = false;
      const sent = send(url, options, (response) => {
        answered = true;
        this.#seen(request, response.statusCode ?? 0);
        resolve(response);
      });
      sent.once("error", (error) => {
        if (!answered) this.#seen(request, 0);
        const cause: unknown = bounded.aborted ? bounded.reason : error;
        reject(outer.aborted ? reasonOf(outer) : noAnswer(describe(request), cause));
      });
      sent.end(body);
    });
  }

  async #read(
    request: ApiRequest,
    response: IncomingMessage,
    max: number,
    outer: AbortSignal,
  ): Promise<string> {
    const parts: Buffer[] = [];
    let size = 0;
    try {
      for await (const part of response) {
        const bytes = Buffer.from(part);
        size += bytes.length;
        if (size > max) throw new ApiError(413, "TooLarge", `${describe(request)}: more than ${max} bytes`);
        parts.push(bytes);
      }
    } catch (error) {
      if (outer.aborted) throw reasonOf(outer);
      throw error instanceof ApiError ? error : noAnswer(describe(request), error);
    }
    return Buffer.concat(parts).toString("utf8");
  }
}

/** The path without its query: names, no tokens. */
const describe = ({ method, path }: ApiRequest): string => `${method} ${path.split("?")[0] ?? path}`;

function reasonOf(signal: AbortSignal): Error {
  return signal.reason instanceof Error ? signal.reason : new Error("the caller went away");
}
