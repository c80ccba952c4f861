import { ApiError, errorOf, unexpected, unreachable } from "./api-error.ts";
import { defaultRetry, delay, type RetryPolicy, retryDelay } from "./backoff.ts";

export interface ClientOptions {
  /** The server's address, such as `http://127.0.0.1:7717`. */
  readonly url: string;
  readonly token?: string | undefined;
  /** Another `fetch`, for tests and proxies. */
  readonly fetch?: typeof fetch;
  readonly retry?: Partial<RetryPolicy>;
  /** How long a stream tries to resume: longer than a request, because nobody waits for one answer. */
  readonly streamRetry?: Partial<RetryPolicy>;
  /** For one try of a request that is not a stream. */
  readonly timeoutMs?: number;
  /** A stream that says nothing for so long, not even a heartbeat, is taken for broken and resumed. */
  readonly silenceMs?: number;
}

export interface CallOptions {
  readonly signal?: AbortSignal | undefined;
}

export interface Request extends CallOptions {
  readonly method?: "GET" | "POST" | "PATCH" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** Hand back the response before its body has arrived. */
  readonly stream?: boolean;
}

/** One server: sends requests, and again when that is safe. */
export interface Transport {
  readonly streamRetry: RetryPolicy;
  readonly silenceMs: number;
  /** The response with a status of 2xx; every other one is thrown as an `ApiError`. */
  send(request: Request): Promise<Response>;
  /** One try of it, for streams that resume by themselves. */
  sendOnce(request: Request): Promise<Response>;
  json<T>(request: Request): Promise<{ readonly value: T; readonly headers: Headers }>;
}

export function createTransport(options: ClientOptions): Transport {
  const base = options.url.replace(/\/+$/, "");
  const send = options.fetch ?? fetch;
  const retry = { ...defaultRetry, ...options.retry };
  const timeoutMs = options.timeoutMs ?? 30_000;

  const sendOnce = async (request: Request): Promise<Response> => {
    const url = urlOf(base, request);
    // The time-out covers a plain answer's body too; a stream's own silence is watched by its reader.
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs);
    const signals = request.signal === undefined ? [deadline.signal] : [deadline.signal, request.signal];
    try {
      const response = await send(url, {
        method: request.method ?? "GET",
        headers: headersOf(request, options.token),
        ...(request.body === undefined ? {} : { body: JSON.stringify(request.body) }),
        signal: AbortSignal.any(signals),
        // The token is for this server alone; only a stored object may live elsewhere.
        redirect: request.stream === true ? "follow" : "error",
      });
      if (!response.ok) throw await errorOf(response);
      if (request.stream === true) return response;
      return new Response(await response.text(), { status: response.status, headers: response.headers });
    } catch (error) {
      if (error instanceof ApiError) throw error;
      request.signal?.throwIfAborted();
      throw unreachable(url, deadline.signal.aborted ? deadline.signal.reason : error);
    } finally {
      clearTimeout(timer);
    }
  };

  const sendAgain = async (asked: Request): Promise<Response> => {
    const request = keyed(asked);
    for (let failures = 1; ; failures += 1) {
      try {
        return await sendOnce(request);
      } catch (error) {
        const wait =
          error instanceof ApiError && error.retryable
            ? retryDelay(retry, failures, error.retryAfterSeconds)
            : undefined;
        if (wait === undefined) throw error;
        await delay(wait, request.signal);
      }
    }
  };

  return {
    streamRetry: { ...defaultRetry, triesMax: 15, ...options.streamRetry },
    silenceMs: options.silenceMs ?? 60_000,
    send: sendAgain,
    sendOnce,
    async json<T>(request: Request) {
      const response = await sendAgain(request);
      const value = (await response.json().catch((error: unknown) => {
        throw unexpected("the answer is not JSON: is this a Holdfast server?", response.status, error);
      })) as T; // The server's own schema says so; a test holds client and server together (G15).
      return { value, headers: response.headers };
    },
  };
}

function urlOf(base: string, { path, query = {} }: Request): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    const values = Array.isArray(value) ? (value as readonly string[]) : [value];
    for (const one of values) if (one !== undefined) parameters.append(name, String(one));
  }
  return parameters.size === 0 ? base + path : `${base}${path}?${parameters.toString()}`;
}

function headersOf({ body, headers }: Request, token: string | undefined): Headers {
  const all = new Headers(headers);
  if (!all.has("accept")) all.set("accept", "application/json");
  if (token !== undefined) all.set("authorization", `Bearer ${token}`);
  if (body !== undefined) all.set("content-type", "application/json");
  return all;
}

/** Every mutation carries one key through all its tries, so that they can't do it twice (G3). */
function keyed(request: Request): Request {
  if ((request.method ?? "GET") === "GET") return request;
  return { ...request, headers: { "idempotency-key": randomKey(), ...request.headers } };
}

/** `crypto.randomUUID` is missing in pages that came by plain HTTP; this is not. */
function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
