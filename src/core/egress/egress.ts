import { lookup } from "node:dns/promises";
import { type IncomingMessage, request as requestHttp } from "node:http";
import { request as requestHttps } from "node:https";
import { isIP } from "node:net";
import { assertOutsideTransition } from "../outside.ts";
import { addressCheck, type Network, networkCheck } from "./address.ts";

export interface EgressRequest {
  readonly url: string;
  readonly method?: "GET" | "POST";
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Uint8Array;
  /** For everything: resolving, connecting, sending, and the whole answer. */
  readonly timeoutMs: number;
  readonly answerBytesMax: number;
  /** The answer is its status and headers: its body is read to nowhere, and may be as large and late as it likes. */
  readonly bodiless?: boolean;
  readonly signal?: AbortSignal | undefined;
}

export interface EgressAnswer {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
}

export type EgressReason =
  | "url" // not https, credentials in it, or not a URL
  | "address" // one of its addresses is none that we connect to
  | "unresolved"
  | "unreachable"
  | "redirect"
  | "too_large"
  | "timeout";

/** Why a request outside was not made or not finished. The detail names no address of an inner network. */
export class EgressRefusal extends Error {
  override readonly name = "EgressRefusal";
  readonly reason: EgressReason;

  constructor(reason: EgressReason, detail: string, cause?: unknown) {
    super(detail, cause === undefined ? undefined : { cause });
    this.reason = reason;
  }
}

/** One request to an address that somebody else chose. Throws `EgressRefusal`. */
export type Egress = (request: EgressRequest) => Promise<EgressAnswer>;

/** All addresses of a name. */
export type Resolve = (name: string) => Promise<readonly string[]>;

const resolveByName: Resolve = async (name) =>
  (await lookup(name, { all: true, verbatim: true })).map(({ address }) => address);

/**
 * The guard in front of every request whose target is configured or given by others: webhooks, issuers' keys.
 * The name is resolved once, every address it has is checked, and the connection goes to one that was checked,
 * so that a second answer of the resolver can't lead elsewhere. No redirect is followed, no proxy used, time and
 * size are bounded. `allowed` are networks beyond the public internet; only there plain http is spoken.
 */
export function openEgress(options: {
  readonly allowed: readonly Network[];
  readonly resolve?: Resolve;
  /** Certificate authorities instead of the system's. */
  readonly authorities?: string;
}): Egress {
  const isAllowed = addressCheck(options.allowed);
  const isInner = networkCheck(options.allowed);
  const resolve = options.resolve ?? resolveByName;
  return async (request) => {
    assertOutsideTransition("egress");
    const url = urlOf(request.url);
    const late = AbortSignal.timeout(request.timeoutMs);
    const signal = request.signal === undefined ? late : AbortSignal.any([late, request.signal]);
    try {
      const addresses = await addressesOf(url, resolve, signal);
      if (!addresses.every(isAllowed)) {
        throw new EgressRefusal("address", `${url.host} has an address that is not a public one`);
      }
      if (url.protocol === "http:" && !addresses.every(isInner)) {
        throw new EgressRefusal("url", "only https leaves the configured networks");
      }
      return await firstAnswer(url, addresses, request, options.authorities, signal);
    } catch (error) {
      if (error instanceof EgressRefusal) throw error;
      request.signal?.throwIfAborted();
      if (late.aborted) throw new EgressRefusal("timeout", `no answer within ${request.timeoutMs} ms`, error);
      throw new EgressRefusal("unreachable", `${url.host} can't be reached`, error);
    }
  };
}

function urlOf(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || (url.protocol !== "https:" && url.protocol !== "http:")) {
    throw new EgressRefusal("url", "not an https URL");
  }
  if (url.username !== "" || url.password !== "") throw new EgressRefusal("url", "credentials in the URL");
  return url;
}

async function addressesOf(url: URL, resolve: Resolve, signal: AbortSignal): Promise<readonly string[]> {
  const name = url.hostname.replace(/^\[|\]$/g, "");
  if (isIP(name) !== 0) return [name];
  const addresses = await raced(resolve(name), signal).catch((error: unknown) => {
    signal.throwIfAborted();
    throw new EgressRefusal("unresolved", `${name} has no address`, error);
  });
  if (addresses.length === 0) throw new EgressRefusal("unresolved", `${name} has no address`);
  return addresses;
}

/** The system's resolver can't be given up, but nobody has to wait for it. */
function raced<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason as Error);
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** One address after the other, until a connection is made. What was sent once is not sent to another. */
async function firstAnswer(
  url: URL,
  addresses: readonly string[],
  request: EgressRequest,
  authorities: string | undefined,
  signal: AbortSignal,
): Promise<EgressAnswer> {
  let failure: unknown;
  for (const address of addresses) {
    const tried = await exchange(url, address, request, authorities, signal);
    if (tried.answer !== null) return tried.answer;
    failure = tried.failure;
    if (tried.connected || signal.aborted) break;
  }
  throw failure;
}

type Tried =
  | { readonly answer: EgressAnswer }
  | { readonly answer: null; readonly failure: unknown; readonly connected: boolean };

function exchange(
  url: URL,
  address: string,
  { method = "GET", headers = {}, body, answerBytesMax, bodiless = false }: EgressRequest,
  authorities: string | undefined,
  signal: AbortSignal,
): Promise<Tried> {
  const secure = url.protocol === "https:";
  const name = url.hostname.replace(/^\[|\]$/g, "");
  const settings = {
    host: address,
    port: url.port === "" ? (secure ? 443 : 80) : Number(url.port),
    path: `${url.pathname}${url.search}`,
    method,
    headers: {
      "accept-encoding": "identity",
      ...headers,
      host: url.host,
      ...(body === undefined ? {} : { "content-length": String(body.length) }),
    },
    agent: false,
    signal,
    // The certificate has to be the name's, whatever address it led to.
    ...(secure && isIP(name) === 0 ? { servername: name } : {}),
    ...(authorities === undefined ? {} : { ca: authorities }),
  } as const;
  return new Promise((resolve) => {
    let connected = false;
    const fail = (failure: unknown) => resolve({ answer: null, failure, connected });
    const sent = (secure ? requestHttps : requestHttp)(settings, (response) => {
      const reading = bodiless ? discard(response, answerBytesMax) : read(response, answerBytesMax);
      reading.then((answer) => resolve({ answer }), fail);
    });
    sent.on("socket", (socket) => {
      socket.once(secure ? "secureConnect" : "connect", () => {
        connected = true;
      });
    });
    sent.on("error", fail);
    sent.end(body);
  });
}

/** The rest is read within bounds, so that whoever answers in order is not cut off, but nobody waits for it. */
async function discard(response: IncomingMessage, bytesMax: number): Promise<EgressAnswer> {
  const status = statusOf(response);
  let bytes = 0;
  response.on("error", () => undefined);
  response.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > bytesMax) response.destroy();
  });
  return { status, headers: response.headers, body: Buffer.alloc(0) };
}

function statusOf(response: IncomingMessage): number {
  const status = response.statusCode ?? 0;
  if (status < 300 || status >= 400) return status;
  response.destroy();
  throw new EgressRefusal("redirect", `the answer was ${status}, and no redirect is followed`);
}

async function read(response: IncomingMessage, bytesMax: number): Promise<EgressAnswer> {
  const status = statusOf(response);
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length;
    if (bytes > bytesMax) {
      response.destroy();
      throw new EgressRefusal("too_large", `the answer is larger than ${bytesMax} bytes`);
    }
    chunks.push(chunk);
  }
  return { status, headers: response.headers, body: Buffer.concat(chunks) };
}
