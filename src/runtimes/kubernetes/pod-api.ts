import type { IncomingMessage } from "node:http";
import { ApiError, isRecord } from "./api-error.ts";
import type { KubernetesConnection } from "./connection.ts";
import { type Pod, readPod, readPodPage } from "./pod.ts";
import { type ApiRequest, type SeenCall, Transport } from "./request.ts";
import { retrying } from "./retry.ts";

/** One operation of RFC 6902. */
export type PatchOperation =
  | { readonly op: "test" | "add" | "replace"; readonly path: string; readonly value: unknown }
  | { readonly op: "remove"; readonly path: string };

export interface PodApiLimits {
  readonly requestMs: number;
  readonly attemptsMax: number;
  readonly firstDelayMs: number;
  readonly delayMsMax: number;
  readonly pageItemsMax: number;
  /** The server ends a watch after this; a quiet one is given up after `silenceMs`. */
  readonly watchSeconds: number;
  /** Bookmarks come about once a minute: more silence than this is a dead connection. */
  readonly silenceMs: number;
}

export const defaultLimits: PodApiLimits = {
  requestMs: 15_000,
  attemptsMax: 4,
  firstDelayMs: 200,
  delayMsMax: 5_000,
  pageItemsMax: 200,
  watchSeconds: 300,
  silenceMs: 90_000,
};

const bodyBytesMax = 32 * 1024 * 1024;
const socketsMax = 256;

export interface LogQuery {
  readonly container: string;
  readonly follow: boolean;
  /** Cut to whole seconds and inclusive by the server. */
  readonly sinceSecond: bigint | null;
}

/**
 * Pods of one namespace, as the API server has them: create, read, list in pages, JSON patch, delete with
 * preconditions, watch, log. It decides nothing. A 403 or 422 tells neither whether the object exists nor which
 * `test` of a patch failed: read the object before concluding.
 */
export class PodApi {
  readonly limits: PodApiLimits;
  readonly #transport: Transport;
  readonly #path: string;

  constructor(
    connection: KubernetesConnection,
    namespace: string,
    limits: Partial<PodApiLimits> = {},
    seen?: SeenCall,
  ) {
    this.limits = { ...defaultLimits, ...limits };
    const { requestMs } = this.limits;
    this.#transport = new Transport(connection, { requestMs, bodyBytesMax, socketsMax }, seen);
    this.#path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods`;
  }

  async create(manifest: unknown, signal: AbortSignal): Promise<Pod> {
    return readPod(
      await this.#json(
        { ...pods("create"), method: "POST", path: `${this.#path}?fieldValidation=Strict`, body: manifest },
        signal,
      ),
    );
  }

  /** With the server's clock, so that ages are never told by ours. Null: no object has this name now. */
  async get(
    name: string,
    signal: AbortSignal,
  ): Promise<{ readonly pod: Pod; readonly serverTime: number } | null> {
    try {
      const answer = await this.#call({ ...pods("get"), method: "GET", path: this.#of(name) }, signal);
      return { pod: readPod(parseBody(answer.body)), serverTime: answer.serverTime };
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    }
  }

  /** All pages of one snapshot. When it expires between two pages the rest is lost: `Expired` is thrown. */
  async *pages(
    selector: string,
    signal: AbortSignal,
  ): AsyncGenerator<{ readonly items: readonly Pod[]; readonly resourceVersion: string }, void> {
    for (let next: string | null = ""; next !== null; ) {
      const query = new URLSearchParams({ labelSelector: selector, limit: String(this.limits.pageItemsMax) });
      if (next !== "") query.set("continue", next);
      const page = readPodPage(
        await this.#json(
          { ...pods("list"), method: "GET", path: `${this.#path}?${query.toString()}` },
          signal,
        ),
      );
      yield page;
      next = page.next;
    }
  }

  /** All operations, or none. */
  async patch(name: string, operations: readonly PatchOperation[], signal: AbortSignal): Promise<Pod> {
    const contentType = "application/json-patch+json";
    const request = { method: "PATCH", path: this.#of(name), body: operations, contentType } as const;
    return readPod(await this.#json({ ...pods("patch"), ...request }, signal));
  }

  /** Asks only: the object stays until its finalizers are gone. A foreign UID or version is a 409. */
  async delete(
    name: string,
    preconditions: { readonly uid: string; readonly resourceVersion?: string },
    signal: AbortSignal,
  ): Promise<void> {
    const body = { apiVersion: "v1", kind: "DeleteOptions", preconditions };
    await this.#call({ ...pods("delete"), method: "DELETE", path: this.#of(name), body }, signal);
  }

  /** One connection of a watch, as raw lines of JSON. */
  async openWatch(query: Readonly<Record<string, string>>, signal: AbortSignal): Promise<IncomingMessage> {
    const all = { watch: "1", allowWatchBookmarks: "true", timeoutSeconds: String(this.limits.watchSeconds) };
    const path = `${this.#path}?${new URLSearchParams({ ...all, ...query }).toString()}`;
    const request = { ...pods("watch"), method: "GET", path } as const;
    return retrying(this.limits, signal, () => this.#transport.stream(request, signal));
  }

  /**
   * The bytes of a log, every line with its time in front: the one line without is the server's own, which says
   * that the log is gone. Null: there is no container yet. Never retried: the reader knows where to go on.
   */
  async openLog(name: string, query: LogQuery, signal: AbortSignal): Promise<IncomingMessage | null> {
    const search = new URLSearchParams({ container: query.container, timestamps: "true" });
    if (query.follow) search.set("follow", "true");
    if (query.sinceSecond !== null) {
      search.set("sinceTime", new Date(Number(query.sinceSecond) * 1000).toISOString().replace(".000", ""));
    }
    const response = await this.#transport.stream(
      {
        verb: "get",
        resource: "pods/log",
        method: "GET",
        path: `${this.#of(name)}/log?${search.toString()}`,
      },
      signal,
    );
    if (response.statusCode !== 204) return response;
    response.resume();
    return null;
  }

  /** A node's object; null: there is none of this name. */
  async node(name: string, signal: AbortSignal): Promise<Readonly<Record<string, unknown>> | null> {
    const path = `/api/v1/nodes/${encodeURIComponent(name)}`;
    try {
      const node = await this.#json({ verb: "get", resource: "nodes", method: "GET", path }, signal);
      return isRecord(node) ? node : {};
    } catch (error) {
      if (error instanceof ApiError && error.reason === "NotFound") return null;
      throw error;
    }
  }

  close(): void {
    this.#transport.close();
  }

  async #json(request: ApiRequest, signal: AbortSignal): Promise<unknown> {
    return parseBody((await this.#call(request, signal)).body);
  }

  #call(request: ApiRequest, signal: AbortSignal) {
    return retrying(this.limits, signal, () => this.#transport.call(request, signal));
  }

  #of(name: string): string {
    return `${this.#path}/${encodeURIComponent(name)}`;
  }
}

const pods = <const Verb extends ApiRequest["verb"]>(verb: Verb) => ({ verb, resource: "pods" }) as const;

function parseBody(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch (error) {
    throw new ApiError(502, "NotJson", "the API server's answer is not JSON", { cause: error });
  }
}
