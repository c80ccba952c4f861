import { isRecord } from "../../../src/runtimes/kubernetes/api-error.ts";
import type { Cluster } from "./cluster.ts";
import type { Exchange } from "./trace.ts";

export interface Answer {
  readonly status: number;
  readonly body: unknown;
}

/**
 * Sends recorded requests to the double. UIDs and versions differ each time, so the recorded ones are exchanged
 * for the double's: a pod's UID by its name, the version in a token by that of the list it goes on from.
 */
export class Replay {
  readonly #cluster: Cluster;
  readonly #uids: ReadonlyMap<string, string>;
  readonly #namespace: string;
  #listed = 0;

  constructor(cluster: Cluster, namespace: string, exchanges: readonly Exchange[]) {
    this.#cluster = cluster;
    this.#namespace = namespace;
    this.#uids = new Map(exchanges.flatMap(({ response }) => podsOf(response.body)));
  }

  async send({ request }: Exchange): Promise<Answer> {
    const body = request.body === undefined ? undefined : bodyText(request.body);
    const response = await fetch(this.#cluster.connection().server + this.#withOurToken(request.path), {
      method: request.method,
      headers: request.headers,
      ...(body === undefined ? {} : { body: this.#translate(body) }),
    });
    const text = await response.text();
    const json = response.headers.get("content-type") === "application/json";
    const answer: unknown = json ? JSON.parse(text) : text;
    if (isRecord(answer) && isRecord(answer.metadata) && "continue" in answer.metadata) {
      this.#listed = Number(answer.metadata.resourceVersion);
    }
    return { status: response.status, body: answer };
  }

  #withOurToken(path: string): string {
    const [before, query = ""] = path.split("?");
    const search = new URLSearchParams(query);
    const token = search.get("continue");
    if (token === null) return path;
    const recorded = JSON.parse(Buffer.from(token, "base64url").toString()) as object;
    const ours = Buffer.from(JSON.stringify({ ...recorded, rv: this.#listed })).toString("base64url");
    search.set("continue", ours);
    return `${before}?${search.toString()}`;
  }

  #translate(text: string): string {
    let translated = text;
    for (const [recorded, name] of this.#uids) {
      const pod = this.#cluster.store.all(this.#namespace).find(({ metadata }) => metadata.name === name);
      if (pod !== undefined) translated = translated.replaceAll(recorded, pod.metadata.uid);
    }
    return translated;
  }
}

const bodyText = (body: unknown): string => (typeof body === "string" ? body : JSON.stringify(body));

function podsOf(body: unknown): [string, string][] {
  if (!isRecord(body) || body.kind !== "Pod" || !isRecord(body.metadata)) return [];
  const { uid, name } = body.metadata;
  return typeof uid === "string" && typeof name === "string" ? [[uid, name]] : [];
}

/**
 * What of an answer is the same each time: of a Status all but numbers and UIDs in its words, of a pod what the
 * server made of it. A recording cut off some members of pods; those that are left are compared.
 */
export function comparable(body: unknown): unknown {
  if (!isRecord(body)) return body;
  if (body.kind === "Status") return withoutNumbers(body);
  if (body.kind === "Pod") return podPart(body);
  if (body.kind === "PodList" && Array.isArray(body.items)) {
    const metadata = isRecord(body.metadata) ? body.metadata : {};
    const { remainingItemCount } = metadata;
    return {
      kind: body.kind,
      remainingItemCount,
      more: "continue" in metadata,
      names: body.items.map((item: unknown) =>
        isRecord(item) && isRecord(item.metadata) ? item.metadata.name : null,
      ),
    };
  }
  return body;
}

function podPart({ metadata, spec, status }: Readonly<Record<string, unknown>>): unknown {
  const { name, generation, labels, annotations, finalizers, deletionGracePeriodSeconds, deletionTimestamp } =
    isRecord(metadata) ? metadata : {};
  const { schedulingGates, activeDeadlineSeconds, nodeName } = isRecord(spec) ? spec : {};
  const { phase, conditions } = isRecord(status) ? status : {};
  return {
    metadata: { name, generation, labels, annotations, finalizers, deletionGracePeriodSeconds },
    deleting: deletionTimestamp !== undefined,
    spec: { schedulingGates, activeDeadlineSeconds, nodeName },
    status: { phase, conditions: Array.isArray(conditions) ? conditions.map(conditionPart) : undefined },
  };
}

function conditionPart(value: unknown): unknown {
  const { type, status, reason, message } = isRecord(value) ? value : {};
  return { type, status, reason, message };
}

const uidShape = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

function withoutNumbers(status: Readonly<Record<string, unknown>>): unknown {
  const text = JSON.stringify(status).replaceAll(uidShape, "UID");
  return JSON.parse(
    text
      .replaceAll(/(version: |current: |in record \()\d+/g, "$1N")
      .replaceAll(/"continue":"[^"]+"/g, '"continue":"T"'),
  );
}
