import { setTimeout as delay } from "node:timers/promises";
import { errorOf, noAnswer, ServiceError } from "./service-error.ts";

export interface RetryLimits {
  readonly attemptsMax: number;
  readonly firstDelayMs: number;
  /** Who asks for a longer wait gets it by the caller's own next try. */
  readonly delayMsMax: number;
}

export interface HttpRequest {
  readonly method: "GET" | "POST" | "PATCH" | "DELETE";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

export interface HttpAnswer {
  readonly status: number;
  readonly body: string;
  /** The server's clock, milliseconds, whole seconds; ours when it tells none. */
  readonly serverTime: number;
}

const bodyBytesMax = 16 * 1024 * 1024;

/** The whole answer within `timeoutMs`. Throws `ServiceError` for all but 2xx, the caller's reason when it has gone. */
export async function call(
  request: HttpRequest,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<HttpAnswer> {
  const bounded = AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]);
  const response = await send(request, bounded, signal);
  const body = await readBody(request, response, signal);
  const date = Date.parse(response.headers.get("date") ?? "");
  return { status: response.status, body, serverTime: Number.isNaN(date) ? Date.now() : date };
}

/** An open stream: whoever reads it bounds it with `bounded`. */
export async function open(
  request: HttpRequest,
  bounded: AbortSignal,
  signal: AbortSignal,
): Promise<Response> {
  return send(request, bounded, signal);
}

async function send(request: HttpRequest, bounded: AbortSignal, outer: AbortSignal): Promise<Response> {
  outer.throwIfAborted();
  const { method, url, headers, body } = request;
  let response: Response;
  try {
    response = await fetch(url, {
      method,
      headers: {
        "user-agent": "holdfast",
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      // A redirect would carry the key to another address.
      redirect: "manual",
      signal: bounded,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch (error) {
    outer.throwIfAborted();
    throw noAnswer(describe(request), error);
  }
  if (response.ok) return response;
  const text = await readBody(request, response, outer);
  throw errorOf(describe(request), response.status, text, response.headers.get("retry-after"));
}

async function readBody(request: HttpRequest, response: Response, outer: AbortSignal): Promise<string> {
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const part of response.body ?? []) {
      size += part.length;
      if (size > bodyBytesMax) {
        throw new ServiceError(413, "", `${describe(request)}: more than ${bodyBytesMax} bytes`);
      }
      parts.push(part);
    }
  } catch (error) {
    outer.throwIfAborted();
    throw error instanceof ServiceError ? error : noAnswer(describe(request), error);
  }
  return Buffer.concat(parts).toString("utf8");
}

/**
 * Again after faults that pass, no earlier than the server asks. Only for what may be done twice: looks, deletions
 * by id, and calls of the guard, which decides for itself what it has done before. Never for a create.
 */
export async function retrying<T>(
  limits: RetryLimits,
  signal: AbortSignal,
  attempt: () => Promise<T>,
): Promise<T> {
  for (let made = 1; ; made += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof ServiceError) || !error.retryable || made >= limits.attemptsMax) throw error;
      const asked = error.retryAfterMs ?? 0;
      if (asked > limits.delayMsMax) throw error;
      const backoff = Math.min(limits.firstDelayMs * 2 ** (made - 1), limits.delayMsMax);
      await delay(Math.max(asked, backoff * (0.5 + Math.random() / 2)), undefined, { signal });
    }
  }
}

/** The path without its query: ids and ports, no tokens. */
const describe = ({ method, url }: HttpRequest): string => `${method} ${new URL(url).pathname}`;
