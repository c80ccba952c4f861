import { type Instant, instant } from "../../core/time.ts";
import type { Metadata } from "./marks.ts";
import { isRecord, isServiceError, ServiceError } from "./service-error.ts";
import { call, type HttpAnswer, type HttpRequest, type RetryLimits, retrying } from "./transport.ts";

export interface ServiceLimits extends RetryLimits {
  readonly requestMs: number;
  /** The service holds a create for up to 60 s before it gives up itself. */
  readonly createMs: number;
  readonly pageItemsMax: number;
}

export interface ServiceConnection {
  /** `http(s)://host:port`, with or without `/v1`. */
  readonly url: string;
  /** Null where the service asks for none. */
  readonly apiKey: string | null;
  /** Whether the exec daemon is reached through the service, which is all that a controller has to reach then. */
  readonly useServerProxy: boolean;
}

/** A sandbox as the service shows it. States are its words: more of them may come, and none is a proof. */
export interface ServiceSandbox {
  readonly id: string;
  readonly state: string;
  readonly reason: string;
  readonly metadata: Metadata;
  readonly createdAt: Instant;
  /** Milliseconds of the service's clock; null without an end. */
  readonly expiresAt: number | null;
}

/** Where one port of a sandbox is reached, and what to send along. */
export interface Endpoint {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

const pagesMax = 1_000;
const readingsMax = 4;

/** The lifecycle API. It decides nothing; what may be sent twice is sent again after faults that pass. */
export class LifecycleApi {
  readonly #limits: ServiceLimits;
  readonly #base: string;
  readonly #connection: ServiceConnection;

  constructor(connection: ServiceConnection, limits: ServiceLimits) {
    this.#connection = connection;
    this.#limits = limits;
    this.#base = `${connection.url.replace(/\/+$/, "").replace(/\/v1$/, "")}/v1`;
  }

  /** Sent once: it has no idempotency key, so only a look by metadata tells what became of a lost answer. */
  async create(body: object, signal: AbortSignal): Promise<ServiceSandbox> {
    const answer = await call(this.#request("POST", "/sandboxes", body), this.#limits.createMs, signal);
    return readSandbox(parse(answer));
  }

  /** With the service's clock. Null: there is no such sandbox now, which is how every one ends. */
  async get(
    id: string,
    signal: AbortSignal,
  ): Promise<{ readonly sandbox: ServiceSandbox; readonly serverTime: number } | null> {
    const answer = await this.#orNull(this.#request("GET", `/sandboxes/${encodeURIComponent(id)}`), signal);
    return answer === null ? null : { sandbox: readSandbox(parse(answer)), serverTime: answer.serverTime };
  }

  /**
   * All that have this pair in their metadata. Newest come first, so what is made or removed meanwhile moves the
   * pages: each id counts once, and it is read again while the total changes.
   */
  async list(key: string, value: string, signal: AbortSignal): Promise<readonly ServiceSandbox[]> {
    const found = new Map<string, ServiceSandbox>();
    for (let reading = 1; ; reading += 1) {
      const totals = new Set<number>();
      for (let page = 1; page <= pagesMax; page += 1) {
        const { items, total, more } = await this.#page(key, value, page, signal);
        totals.add(total);
        for (const item of items) if (item.metadata[key] === value) found.set(item.id, item);
        if (!more) break;
      }
      if (totals.size <= 1 || reading === readingsMax) return [...found.values()];
    }
  }

  /** Returns before anything has ended: neither 204 nor 404 shows that the pod has stopped. */
  async remove(id: string, signal: AbortSignal): Promise<void> {
    await this.#orNull(this.#request("DELETE", `/sandboxes/${encodeURIComponent(id)}`), signal);
  }

  /** The service takes an earlier time too, so nobody may ask with one. */
  async renew(id: string, expiresAt: number, signal: AbortSignal): Promise<void> {
    const body = { expiresAt: new Date(expiresAt).toISOString() };
    await this.#call(
      this.#request("POST", `/sandboxes/${encodeURIComponent(id)}/renew-expiration`, body),
      signal,
    );
  }

  /** Merged without a lock: only for what may be late or lost. */
  async patchMetadata(id: string, metadata: Metadata, signal: AbortSignal): Promise<void> {
    await this.#call(
      this.#request("PATCH", `/sandboxes/${encodeURIComponent(id)}/metadata`, metadata),
      signal,
    );
  }

  async endpoint(id: string, port: number, signal: AbortSignal): Promise<Endpoint> {
    const { useServerProxy } = this.#connection;
    const path = `/sandboxes/${encodeURIComponent(id)}/endpoints/${port}?use_server_proxy=${useServerProxy}`;
    const value = parse(await this.#call(this.#request("GET", path), signal));
    if (!isRecord(value) || typeof value.endpoint !== "string") throw malformed("an endpoint");
    const headers = isRecord(value.headers) ? textsOf(value.headers) : {};
    // Through the service it is reached as the service is; beside it, as its network is: without TLS of its own.
    const scheme = useServerProxy ? new URL(this.#base).protocol : "http:";
    const url = /^https?:\/\//.test(value.endpoint) ? value.endpoint : `${scheme}//${value.endpoint}`;
    return { url: url.replace(/\/+$/, ""), headers: { ...(useServerProxy ? this.#key() : {}), ...headers } };
  }

  async #page(key: string, value: string, page: number, signal: AbortSignal) {
    const pageSize = String(this.#limits.pageItemsMax);
    const query = new URLSearchParams({ metadata: `${key}=${value}`, page: String(page), pageSize });
    const body = parse(await this.#call(this.#request("GET", `/sandboxes?${query.toString()}`), signal));
    if (!isRecord(body) || !Array.isArray(body.items) || !isRecord(body.pagination))
      throw malformed("a page");
    const { hasNextPage, totalItems } = body.pagination;
    return {
      items: body.items.map(readSandbox),
      total: typeof totalItems === "number" ? totalItems : 0,
      more: hasNextPage === true,
    };
  }

  async #orNull(request: HttpRequest, signal: AbortSignal): Promise<HttpAnswer | null> {
    try {
      return await this.#call(request, signal);
    } catch (error) {
      if (isServiceError(error, 404)) return null;
      throw error;
    }
  }

  #call(request: HttpRequest, signal: AbortSignal): Promise<HttpAnswer> {
    return retrying(this.#limits, signal, () => call(request, this.#limits.requestMs, signal));
  }

  #request(method: HttpRequest["method"], path: string, body?: unknown): HttpRequest {
    const headers = { accept: "application/json", ...this.#key() };
    return { method, url: this.#base + path, headers, ...(body === undefined ? {} : { body }) };
  }

  #key(): Readonly<Record<string, string>> {
    const { apiKey } = this.#connection;
    return apiKey === null ? {} : { "OPEN-SANDBOX-API-KEY": apiKey };
  }
}

function readSandbox(value: unknown): ServiceSandbox {
  if (!isRecord(value) || typeof value.id !== "string") throw malformed("a sandbox");
  const { id, status, metadata, createdAt, expiresAt } = value;
  const { state, reason, message } = isRecord(status) ? status : {};
  const created = typeof createdAt === "string" ? Date.parse(createdAt) : Number.NaN;
  const expires = typeof expiresAt === "string" ? Date.parse(expiresAt) : Number.NaN;
  return {
    id,
    state: typeof state === "string" ? state : "",
    reason: [reason, message].filter((words) => typeof words === "string" && words !== "").join(": "),
    metadata: isRecord(metadata) ? textsOf(metadata) : {},
    createdAt: instant(BigInt(Number.isNaN(created) ? 0 : created) * 1000n),
    expiresAt: Number.isNaN(expires) ? null : expires,
  };
}

const textsOf = (value: Readonly<Record<string, unknown>>): Readonly<Record<string, string>> =>
  Object.fromEntries(
    Object.entries(value).filter((entry): entry is [string, string] => typeof entry[1] === "string"),
  );

function parse({ body }: HttpAnswer): unknown {
  try {
    return JSON.parse(body);
  } catch (error) {
    throw new ServiceError(502, "", "the service's answer is not JSON", { cause: error });
  }
}

const malformed = (what: string): ServiceError =>
  new ServiceError(502, "", `the service's answer is not ${what}`);
