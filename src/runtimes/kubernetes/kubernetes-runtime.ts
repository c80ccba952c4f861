import { HoldfastError } from "../../core/errors.ts";
import { assertOutsideTransition } from "../../core/outside.ts";
import {
  type ExternalObject,
  type LogRecord,
  type Observation,
  type PrepareRequest,
  type Runtime,
  RuntimeRefusal,
  type SandboxRef,
  type SandboxSpec,
} from "../../core/runtime.port.ts";
import { instant, type Microseconds } from "../../core/time.ts";
import { isApiError } from "./api-error.ts";
import type { KubernetesConnection } from "./connection.ts";
import { followLog } from "./log-follow.ts";
import { nodeWords } from "./node.ts";
import { observationOf } from "./observation.ts";
import type { Pod } from "./pod.ts";
import { PodApi, type PodApiLimits } from "./pod-api.ts";
import { PodFeed } from "./pod-feed.ts";
import {
  checkName,
  checkRequest,
  defaultPodSettings,
  type PodSettings,
  podManifest,
} from "./pod-manifest.ts";
import { annotations, epochOf, hasNode, isDeleting, isHeld, labels, time } from "./pod-marks.ts";
import { fencePatch, finalizerPatch, lowerPatch, releasePatch, stopPatch } from "./pod-patches.ts";
import { nodeIsSilent, proofOf } from "./proof.ts";
import { refusalOfCreate, requireReleasable } from "./refusals.ts";
import type { SeenCall } from "./request.ts";
import { nextStep, type Step } from "./upkeep.ts";
import { VersionMemory } from "./version-memory.ts";

export interface KubernetesRuntimeOptions {
  readonly connection: KubernetesConnection;
  readonly namespace: string;
  /** A label's value. */
  readonly installation: string;
  readonly pods?: Partial<PodSettings>;
  /** Output that is read of each sandbox. */
  readonly logBytesMax?: number;
  readonly limits?: Partial<PodApiLimits>;
  /** Whether what a pod's node says is read when its stop can't be proven. Needs the right to `get` nodes. */
  readonly readNodes?: boolean;
  /** For counting requests. */
  readonly onRequest?: SeenCall;
}

const defaultLogBytesMax = 64 * 1024 * 1024;
/** A watch is a hint, and may be behind: this bounds what it misses. */
const watchMilliseconds = 10_000;
/** Each round but the last was lost to another writer of the same object: controllers and the kubelet. */
const roundsMax = 20;

interface Look {
  readonly pod: Pod;
  /** The server's clock. */
  readonly now: number;
}

/**
 * Sandboxes as bare pods of one namespace. Held by a scheduling gate; released by one JSON patch that tests UID,
 * epoch and that it is not being deleted; stopped in the way that keeps the log; kept by a finalizer of ours
 * until what only the kubelet writes shows that nothing of it runs. Every 403, 409 and 422 is followed by a read:
 * they don't tell what the object is now.
 */
export function kubernetesRuntime(options: KubernetesRuntimeOptions): Runtime {
  return new KubernetesRuntime(options);
}

class KubernetesRuntime implements Runtime {
  readonly kind = "kubernetes";
  readonly #api: PodApi;
  readonly #installation: string;
  readonly #selector: string;
  readonly #settings: PodSettings;
  readonly #logBytesMax: number;
  readonly #feed: PodFeed;
  readonly #readNodes: boolean;
  /** What was last seen of each object: only what is newer is a change. */
  readonly #versions = new VersionMemory();

  constructor(options: KubernetesRuntimeOptions) {
    if (!/^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$/.test(options.installation)) {
      throw new HoldfastError("invalid_configuration", "the installation id is not a value of a label");
    }
    this.#api = new PodApi(options.connection, options.namespace, options.limits, options.onRequest);
    this.#readNodes = options.readNodes ?? false;
    this.#installation = options.installation;
    this.#selector = `${labels.installation}=${options.installation}`;
    this.#feed = new PodFeed(this.#api, this.#selector);
    this.#settings = { ...defaultPodSettings, ...options.pods };
    this.#logBytesMax = options.logBytesMax ?? defaultLogBytesMax;
  }

  async prepare(request: PrepareRequest, signal: AbortSignal): Promise<{ readonly uid: string }> {
    assertOutsideTransition("kubernetes.prepare");
    checkRequest(request, this.#installation);
    const manifest = podManifest(request, this.#settings);
    for (let round = 0; round < roundsMax; round += 1) {
      const seen = await this.#look(request.name, signal);
      if (seen !== null) {
        if (await this.#adopt(seen.pod, request, signal)) return { uid: seen.pod.metadata.uid };
        continue;
      }
      try {
        const { uid } = (await this.#api.create(manifest, signal)).metadata;
        return { uid };
      } catch (error) {
        // A full quota answers 403 for a name that exists, and an answer that was lost may have taken effect.
        const now = isApiError(error) ? await this.#look(request.name, signal) : null;
        if (now === null && !isApiError(error, 409)) throw refusalOfCreate(error);
      }
    }
    throw busy(request.name);
  }

  async fence(ref: SandboxRef, epoch: bigint, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("kubernetes.fence");
    await this.#rounds(ref, signal, async ({ pod }) => {
      requireEpoch(pod, epoch);
      if (epochOf(pod) === epoch) return true;
      return this.#try(() => this.#api.patch(ref.name, fencePatch(pod, epoch), signal));
    });
  }

  async release(ref: SandboxRef, epoch: bigint, limit: Microseconds, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("kubernetes.release");
    await this.#rounds(ref, signal, async ({ pod, now }) => {
      requireEpoch(pod, epoch);
      if (!isHeld(pod)) return true;
      requireReleasable(pod, epoch, limit);
      return this.#try(() => this.#api.patch(ref.name, releasePatch(pod, limit, now), signal));
    });
  }

  async stop(ref: SandboxRef, epoch: bigint, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("kubernetes.stop");
    await this.#rounds(ref, signal, async ({ pod, now }) => {
      requireEpoch(pod, epoch);
      if (proofOf(pod).stopped) return true;
      if (!hasNode(pod)) return this.#delete(pod, signal);
      const mark = { why: "asked", message: "", at: new Date(now).toISOString() } as const;
      const patch = stopPatch(pod, mark);
      return patch === null || this.#try(() => this.#api.patch(ref.name, patch, signal));
    });
  }

  /** Looks, and does what nothing else would do: ends what is past its limit or can't start (E4, E21). */
  async observe(ref: SandboxRef, signal: AbortSignal): Promise<Observation> {
    assertOutsideTransition("kubernetes.observe");
    checkName(ref.name);
    try {
      const seen = await this.#look(ref.name, signal);
      if (seen === null || seen.pod.metadata.uid !== ref.uid) return { state: "absent" };
      await this.#keep(seen, signal);
      const observation = observationOf(seen.pod);
      if (observation.state !== "unproven" || !this.#readNodes || !nodeIsSilent(seen.pod)) return observation;
      const words = await nodeWords(this.#api, seen.pod.spec.nodeName ?? "", signal);
      return { state: "unproven", reason: `${observation.reason}; ${words}` };
    } catch (error) {
      signal.throwIfAborted();
      return { state: "unproven", reason: `the API server can't be asked: ${String(error)}` };
    }
  }

  async changed(ref: SandboxRef, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("kubernetes.changed");
    checkName(ref.name);
    const version = this.#versions.get(ref.uid);
    // Never looked at: whoever looks now learns something.
    if (version === null) return;
    const bounded = AbortSignal.any([signal, AbortSignal.timeout(watchMilliseconds)]);
    await this.#feed.changed(ref.uid, version, bounded);
  }

  logs(
    ref: SandboxRef,
    options: { readonly cursor: string | null; readonly follow: boolean },
    signal: AbortSignal,
  ): AsyncIterable<LogRecord> {
    assertOutsideTransition("kubernetes.logs");
    checkName(ref.name);
    const source = {
      api: this.#api,
      ref,
      bytesMax: this.#logBytesMax,
      look: async () => (await this.#need(ref, signal)).pod,
      changed: () => this.changed(ref, signal),
    };
    return followLog(source, options, signal);
  }

  async find(name: string, signal: AbortSignal): Promise<string | null> {
    assertOutsideTransition("kubernetes.find");
    return (await this.#look(checkName(name), signal))?.pod.metadata.uid ?? null;
  }

  /**
   * None: the values go from a Secret to the container without passing here, and we hold no right to read
   * Secrets. So they can't be masked by their values in the output either.
   */
  async secretValues(_spec: Pick<SandboxSpec, "secrets">, signal: AbortSignal): Promise<readonly string[]> {
    assertOutsideTransition("kubernetes.secretValues");
    signal.throwIfAborted();
    return [];
  }

  async remove(ref: SandboxRef, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("kubernetes.remove");
    checkName(ref.name);
    for (let round = 0; round < roundsMax; round += 1) {
      const seen = await this.#look(ref.name, signal);
      if (seen === null || seen.pod.metadata.uid !== ref.uid) return;
      const { pod } = seen;
      if (!proofOf(pod).stopped) {
        throw new RuntimeRefusal("invalid", `${ref.name} is not known to have stopped: stop it first`);
      }
      if (!isDeleting(pod)) {
        await this.#delete(pod, signal);
        continue;
      }
      const patch = finalizerPatch(pod);
      // Another's finalizer, or the kubelet's last word, may keep it for a while: it is theirs.
      if (patch === null || (await this.#try(() => this.#api.patch(ref.name, patch, signal)))) {
        this.#versions.forget(ref.uid);
        return;
      }
    }
    throw busy(ref.name);
  }

  list(signal: AbortSignal): AsyncIterable<ExternalObject> {
    assertOutsideTransition("kubernetes.list");
    return this.#list(signal);
  }

  async *#list(signal: AbortSignal): AsyncGenerator<ExternalObject, void> {
    for await (const page of this.#api.pages(this.#selector, signal)) {
      for (const pod of page.items) {
        const { name, uid, creationTimestamp } = pod.metadata;
        const tenant = pod.metadata.annotations?.[annotations.tenant] ?? null;
        const sandbox = pod.metadata.labels?.[labels.sandbox] ?? null;
        const createdAt = instant(BigInt(time(creationTimestamp) ?? 0) * 1000n);
        yield { name, uid, tenant, sandbox, epoch: epochOf(pod), createdAt };
      }
    }
  }

  async #adopt(pod: Pod, request: PrepareRequest, signal: AbortSignal): Promise<boolean> {
    const { annotations: noted = {}, labels: labelled = {}, name } = pod.metadata;
    const same =
      noted[annotations.specDigest] === request.specDigest &&
      labelled[labels.installation] === request.installation;
    if (!same) throw new RuntimeRefusal("name_taken", `${name} belongs to an object of another spec`);
    requireEpoch(pod, request.epoch);
    if (epochOf(pod) === request.epoch) return true;
    return this.#try(() => this.#api.patch(name, fencePatch(pod, request.epoch), signal));
  }

  /** What can't be done now is done at the next look: it takes nothing from what was seen. */
  async #keep(seen: Look, signal: AbortSignal): Promise<void> {
    try {
      await this.#carryOut(nextStep(seen.pod, seen.now), seen, signal);
    } catch (error) {
      if (!isApiError(error)) throw error;
    }
  }

  async #carryOut(step: Step, { pod, now }: Look, signal: AbortSignal): Promise<void> {
    const { name } = pod.metadata;
    switch (step.do) {
      case "nothing":
        return;
      case "delete":
        await this.#delete(pod, signal);
        return;
      case "stop": {
        const patch = stopPatch(pod, { ...step.mark, at: new Date(now).toISOString() });
        if (patch !== null) await this.#try(() => this.#api.patch(name, patch, signal));
        return;
      }
      case "lower":
        await this.#try(() => this.#api.patch(name, lowerPatch(pod, step.seconds), signal));
        return;
    }
  }

  /** Exactly what was seen: a release, a fence or a status in between makes it fail, and is looked at again. */
  #delete({ metadata: { name, uid, resourceVersion } }: Pod, signal: AbortSignal): Promise<boolean> {
    return this.#try(() => this.#api.delete(name, { uid, resourceVersion }, signal));
  }

  async #rounds(
    ref: SandboxRef,
    signal: AbortSignal,
    round: (seen: Look) => Promise<boolean>,
  ): Promise<void> {
    checkName(ref.name);
    for (let made = 0; made < roundsMax; made += 1) {
      if (await round(await this.#need(ref, signal))) return;
    }
    throw busy(ref.name);
  }

  /** False: it was not as it was seen. */
  async #try(write: () => Promise<unknown>): Promise<boolean> {
    try {
      await write();
      return true;
    } catch (error) {
      if (isApiError(error, 404, 409, 422)) return false;
      throw error;
    }
  }

  async #need(ref: SandboxRef, signal: AbortSignal): Promise<Look> {
    const seen = await this.#look(ref.name, signal);
    if (seen === null) throw new RuntimeRefusal("gone", `${ref.name} was removed`);
    if (seen.pod.metadata.uid !== ref.uid) {
      throw new RuntimeRefusal("wrong_uid", `${ref.name} has another UID`);
    }
    return seen;
  }

  async #look(name: string, signal: AbortSignal): Promise<Look | null> {
    signal.throwIfAborted();
    const seen = await this.#api.get(name, signal);
    if (seen === null) return null;
    this.#versions.note(seen.pod.metadata.uid, seen.pod.metadata.resourceVersion);
    return { pod: seen.pod, now: seen.serverTime };
  }
}

function requireEpoch(pod: Pod, epoch: bigint): void {
  const stands = epochOf(pod);
  if (epoch < stands) {
    throw new RuntimeRefusal("superseded", `epoch ${epoch} is older than ${stands}, which stands`);
  }
}

const busy = (name: string): HoldfastError =>
  new HoldfastError("unavailable", `${name} is being changed by others all the time`);
