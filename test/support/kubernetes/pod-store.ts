import { randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { applyPatch, mergePatch } from "./json-patch.ts";
import { type PodObject, timestamp } from "./pod-object.ts";
import { admit, checkChange } from "./pod-validation.ts";
import { invalid, notFound, StatusError } from "./status.ts";

export interface StoreEvent {
  readonly version: number;
  readonly type: "ADDED" | "MODIFIED" | "DELETED";
  readonly pod: PodObject;
  /** As it was, to tell whether a selector matched before. */
  readonly before: PodObject | null;
}

export interface DeleteInput {
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly graceSeconds?: number;
}

const eventsMax = 20_000;

/**
 * The pods and their versions, with the rules of the API server for create, patch and delete. Every stored
 * object is replaced, never changed, so that events and lists are snapshots.
 */
export class PodStore {
  /** As etcd's: one number for all objects. */
  version = 1000;
  /** Watches from before this are too old. */
  windowStart = 1000;
  /** Pods a namespace may have, as a ResourceQuota says it: checked before the name is. */
  quota: number | null = null;
  readonly events: StoreEvent[] = [];
  readonly #pods = new Map<string, PodObject>();
  readonly #listeners = new Set<(event: StoreEvent) => void>();

  all(namespace: string): readonly PodObject[] {
    const found = [...this.#pods.values()].filter((pod) => pod.metadata.namespace === namespace);
    return found.sort((one, two) => (one.metadata.name < two.metadata.name ? -1 : 1));
  }

  get(namespace: string, name: string): PodObject {
    const pod = this.#pods.get(`${namespace}/${name}`);
    if (pod === undefined) throw notFound(name);
    return pod;
  }

  find(uid: string): PodObject | undefined {
    return [...this.#pods.values()].find((pod) => pod.metadata.uid === uid);
  }

  uids(): readonly string[] {
    return [...this.#pods.values()].map((pod) => pod.metadata.uid);
  }

  listen(listener: (event: StoreEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  create(namespace: string, body: unknown, options: { readonly strict: boolean }): PodObject {
    const input = admit(body, namespace, options);
    const { name } = input.metadata;
    this.#admitQuota(namespace, name);
    const stood = this.#pods.get(`${namespace}/${name}`);
    if (stood !== undefined) throw alreadyExists(stood);
    const { labels, annotations, finalizers } = input.metadata;
    const pod: PodObject = {
      metadata: {
        name,
        namespace,
        uid: randomUUID(),
        resourceVersion: "",
        generation: 1,
        creationTimestamp: timestamp(),
        ...(labels === undefined ? {} : { labels }),
        ...(annotations === undefined ? {} : { annotations }),
        ...(finalizers === undefined ? {} : { finalizers }),
      },
      spec: input.spec,
      status: input.status,
    };
    return this.#store("ADDED", pod, null);
  }

  patch(namespace: string, name: string, patch: unknown, kind: "json" | "merge"): PodObject {
    const before = this.get(namespace, name);
    const patched = kind === "json" ? applyPatch(before, patch) : mergePatch(before, patch);
    const after = normal({ ...(patched as PodObject), status: before.status });
    checkChange(before, after);
    return this.#change(before, after);
  }

  delete(namespace: string, name: string, input: DeleteInput): PodObject {
    const before = this.get(namespace, name);
    checkPreconditions(before, input);
    const { metadata, spec, status } = before;
    const over = spec.nodeName === undefined || status.phase === "Succeeded" || status.phase === "Failed";
    const wanted = (input.graceSeconds ?? -1) < 0 ? spec.terminationGracePeriodSeconds : input.graceSeconds;
    const grace = over ? 0 : (wanted ?? 0);
    const stood = metadata.deletionGracePeriodSeconds;
    if (stood !== undefined && grace >= stood) return before;
    const deleting = {
      ...metadata,
      generation: metadata.generation + 1,
      deletionTimestamp: timestamp(Date.now() + grace * 1000),
      deletionGracePeriodSeconds: grace,
    };
    const after = this.#store("MODIFIED", { ...before, metadata: deleting }, before);
    if (mayGo(after)) this.#remove(after);
    return after;
  }

  /** The kubelet's and the controllers' own writes. Null: it is gone. */
  report(uid: string, change: (pod: PodObject) => void): PodObject | null {
    const before = this.find(uid);
    if (before === undefined) return null;
    const after = structuredClone(before);
    change(after);
    if (isDeepStrictEqual(before, after)) return before;
    const stored = this.#store("MODIFIED", after, before);
    if (mayGo(stored)) this.#remove(stored);
    return stored;
  }

  /** After a restart every version from before it is too old, but for the very last. */
  restart(): void {
    this.windowStart = this.version;
    this.events.length = 0;
  }

  #change(before: PodObject, after: PodObject): PodObject {
    if (isDeepStrictEqual(before, after)) return before;
    const spec = !isDeepStrictEqual(before.spec, after.spec);
    const generation = before.metadata.generation + (spec ? 1 : 0);
    const changed = { ...after, metadata: { ...after.metadata, generation } };
    if (mayGo(changed)) {
      // The answer carries the old version; the event a newer one, with the finalizer still in its object.
      this.#remove(before);
      return changed;
    }
    return this.#store("MODIFIED", changed, before);
  }

  #store(type: StoreEvent["type"], pod: PodObject, before: PodObject | null): PodObject {
    this.version += 1;
    const stored = { ...pod, metadata: { ...pod.metadata, resourceVersion: String(this.version) } };
    const key = `${pod.metadata.namespace}/${pod.metadata.name}`;
    if (type === "DELETED") this.#pods.delete(key);
    else this.#pods.set(key, stored);
    const event = { version: this.version, type, pod: stored, before };
    this.events.push(event);
    if (this.events.length > eventsMax) this.windowStart = this.events.shift()?.version ?? this.windowStart;
    for (const listener of this.#listeners) listener(event);
    return stored;
  }

  #remove(pod: PodObject): void {
    this.#store("DELETED", pod, pod);
  }

  #admitQuota(namespace: string, name: string): void {
    const used = this.all(namespace).filter((pod) => pod.metadata.deletionTimestamp === undefined).length;
    if (this.quota === null || used < this.quota) return;
    const numbers = `requested: pods=1, used: pods=${used}, limited: pods=${this.quota}`;
    throw new StatusError(403, "Forbidden", `pods "${name}" is forbidden: exceeded quota: q, ${numbers}`, {
      name,
      kind: "pods",
    });
  }
}

function mayGo({ metadata }: PodObject): boolean {
  return metadata.deletionGracePeriodSeconds === 0 && (metadata.finalizers ?? []).length === 0;
}

/** Empty lists and maps are not stored. */
function normal(pod: PodObject): PodObject {
  const { finalizers, ...metadata } = pod.metadata;
  const { schedulingGates, ...spec } = pod.spec;
  return {
    ...pod,
    metadata: { ...metadata, ...((finalizers ?? []).length === 0 ? {} : { finalizers: finalizers ?? [] }) },
    spec: {
      ...spec,
      ...((schedulingGates ?? []).length === 0 ? {} : { schedulingGates: schedulingGates ?? [] }),
    },
  };
}

function alreadyExists({ metadata: { name, deletionTimestamp } }: PodObject): StatusError {
  const deleting = deletionTimestamp === undefined ? "" : "object is being deleted: ";
  const message = `${deleting}pods "${name}" already exists`;
  return new StatusError(409, "AlreadyExists", message, { name, kind: "pods" });
}

function checkPreconditions(
  { metadata }: PodObject,
  { uid, resourceVersion, graceSeconds }: DeleteInput,
): void {
  const { name } = metadata;
  if ((graceSeconds ?? 0) < -1) throw invalid(name, []);
  const conflict = (words: string) =>
    new StatusError(409, "Conflict", `Operation cannot be fulfilled on Pod "${name}": ${words}`, {
      name,
      kind: "Pod",
    });
  if (uid !== undefined && uid !== metadata.uid) {
    throw conflict(
      `the UID in the precondition (${uid}) does not match the UID in record (${metadata.uid}). The object might have been deleted and then recreated`,
    );
  }
  if (resourceVersion !== undefined && resourceVersion !== metadata.resourceVersion) {
    throw conflict(
      `the ResourceVersion in the precondition (${resourceVersion}) does not match the ResourceVersion in record (${metadata.resourceVersion}). The object might have been modified`,
    );
  }
}
