import type { PodObject } from "./pod-object.ts";
import type { PodStore } from "./pod-store.ts";
import { badRequest, expired, StatusError } from "./status.ts";

const tokenVersion = "meta.k8s.io/v1";

/** Lists, in pages of one snapshot each, as the API server words them. */
export class PodLists {
  /** A list from before, for a server that answers from a cache that lags. */
  stale: readonly PodObject[] | null = null;
  readonly #store: PodStore;
  /** What pages go on from. A restart together with a compaction loses them. */
  readonly #snapshots = new Map<number, readonly PodObject[]>();

  constructor(store: PodStore) {
    this.#store = store;
  }

  forget(): void {
    this.#snapshots.clear();
  }

  list(namespace: string, query: URLSearchParams): object {
    const asked = query.get("resourceVersion");
    const token = query.get("continue");
    if (token !== null && asked !== null) {
      throw badRequest("specifying resource version is not allowed when using continue");
    }
    const { version, after } =
      token === null ? { version: this.#version(asked), after: "" } : readToken(token);
    const all = token === null ? this.#now(namespace, version) : this.#continued(namespace, version, after);
    const matches = selector(query);
    const rest = all.filter((pod) => pod.metadata.name > after && matches(pod));
    const limit = asked === "0" ? 0 : Number(query.get("limit") ?? "0");
    const items = limit > 0 ? rest.slice(0, limit) : rest;
    const left = rest.length - items.length;
    const last = items.at(-1)?.metadata.name ?? "";
    const selected = query.has("labelSelector") || query.has("fieldSelector");
    const shownVersion = version === -1 ? this.#store.version : version;
    return {
      kind: "PodList",
      apiVersion: "v1",
      metadata: {
        resourceVersion: String(shownVersion),
        ...(left > 0 ? { continue: writeToken(shownVersion, `/${last}\0`) } : {}),
        ...(left > 0 && !selected ? { remainingItemCount: left } : {}),
      },
      items,
    };
  }

  #now(namespace: string, version: number): readonly PodObject[] {
    const all = this.stale ?? this.#store.all(namespace);
    this.#snapshots.set(version, all);
    return all;
  }

  #continued(namespace: string, version: number, after: string): readonly PodObject[] {
    if (version === -1) return this.#store.all(namespace);
    const all = this.#snapshots.get(version);
    if (all !== undefined) return all;
    const words =
      "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";
    throw expired(words, writeToken(-1, `${after}\0`));
  }

  #version(asked: string | null): number {
    if (asked === null || asked === "0") return this.#store.version;
    if (!/^\d+$/.test(asked)) {
      throw badRequest(
        `invalid resource version: resourceVersion: Invalid value: "${asked}": strconv.ParseUint: parsing "${asked}": invalid syntax`,
      );
    }
    if (Number(asked) > this.#store.version) {
      const causes = [{ reason: "ResourceVersionTooLarge", message: "Too large resource version" }];
      throw new StatusError(
        504,
        "Timeout",
        `Timeout: Too large resource version: ${asked}, current: ${this.#store.version}`,
        { causes, retryAfterSeconds: 1 },
      );
    }
    return this.#store.version;
  }
}

function writeToken(rv: number, start: string): string {
  return Buffer.from(JSON.stringify({ v: tokenVersion, rv, start })).toString("base64url");
}

function readToken(token: string): { readonly version: number; readonly after: string } {
  try {
    const { rv, start } = JSON.parse(Buffer.from(token, "base64url").toString()) as {
      rv: number;
      start: string;
    };
    return { version: rv, after: start.replace(/^\//, "").replace(/\0$/, "") };
  } catch {
    throw badRequest("invalid continue token: continue key is not valid: invalid character");
  }
}

/** Equality of labels, and of the fields that pods can be selected by. */
export function selector(query: URLSearchParams): (pod: PodObject) => boolean {
  const labels = pairs(query.get("labelSelector"));
  const fields = pairs(query.get("fieldSelector"));
  for (const [field] of fields) {
    if (!(field in fieldReaders)) throw badRequest(`field label not supported: ${field}`);
  }
  return (pod) =>
    labels.every(([key, value]) => pod.metadata.labels?.[key] === value) &&
    fields.every(([field, value]) => fieldReaders[field]?.(pod) === value);
}

const fieldReaders: Readonly<Record<string, (pod: PodObject) => string>> = {
  "metadata.name": (pod) => pod.metadata.name,
  "spec.nodeName": (pod) => pod.spec.nodeName ?? "",
  "status.phase": (pod) => pod.status.phase,
};

function pairs(text: string | null): readonly (readonly [string, string])[] {
  if (text === null || text === "") return [];
  return text.split(",").map((pair) => {
    const [key = "", value = ""] = pair.split("=");
    if (key === "") throw badRequest("found '==', expected: !, identifier, or 'end of string'");
    return [key, value] as const;
  });
}
