import type { PodApi } from "./pod-api.ts";
import { type PodEvent, watchPods } from "./pod-watch.ts";

/** A watch goes on so long after the last who waited for it: most come back at once. */
const lingerMs = 3_000;

/**
 * One watch for everybody who waits for a change of a pod, however many there are. It runs only while somebody
 * waits. What it tells is a hint: whoever is woken looks for himself.
 */
export class PodFeed {
  readonly #api: PodApi;
  readonly #selector: string;
  /** The newest version that the watch has shown of each object that is there. */
  #versions = new Map<string, bigint>();
  readonly #waiting = new Map<string, Set<() => void>>();
  #run: AbortController | null = null;
  #linger: NodeJS.Timeout | null = null;

  constructor(api: PodApi, selector: string) {
    this.#api = api;
    this.#selector = selector;
  }

  /** Resolve when the object is newer than the version that was seen, is gone, or the signal aborts. */
  async changed(uid: string, seen: string, signal: AbortSignal): Promise<void> {
    const known = this.#versions.get(uid);
    if (signal.aborted || (known !== undefined && known > versionOf(seen))) return;
    const after = versionOf(seen);
    await new Promise<void>((resolve) => {
      const waiters = this.#waiting.get(uid) ?? new Set();
      const wake = () => {
        const now = this.#versions.get(uid);
        // The watch may be behind whoever looked: what it shows then is no news.
        if (!signal.aborted && now !== undefined && now !== incomparable && now <= after) return;
        waiters.delete(wake);
        if (waiters.size === 0) this.#waiting.delete(uid);
        signal.removeEventListener("abort", wake);
        this.#rest();
        resolve();
      };
      waiters.add(wake);
      this.#waiting.set(uid, waiters);
      signal.addEventListener("abort", wake, { once: true });
      this.#start();
    });
  }

  #start(): void {
    if (this.#linger !== null) clearTimeout(this.#linger);
    this.#linger = null;
    if (this.#run !== null) return;
    const run = new AbortController();
    this.#run = run;
    void this.#follow(run.signal).finally(() => {
      // It ended by a fault that is no fault of the API: who waits looks, and waits anew.
      if (this.#run !== run) return;
      this.#run = null;
      this.#versions.clear();
      for (const uid of this.#waiting.keys()) this.#wake(uid);
    });
  }

  #rest(): void {
    if (this.#waiting.size > 0 || this.#linger !== null) return;
    this.#linger = setTimeout(() => {
      this.#linger = null;
      this.#run?.abort();
      this.#run = null;
      this.#versions.clear();
    }, lingerMs);
  }

  async #follow(signal: AbortSignal): Promise<void> {
    try {
      for await (const event of watchPods(this.#api, this.#selector, signal)) {
        if (signal.aborted) return;
        this.#take(event);
      }
    } catch {
      // A watch is a hint: without it everybody looks when his time is up.
    }
  }

  #take(event: PodEvent): void {
    if (event.type === "RELISTED") {
      this.#versions = new Map(
        event.pods.map(({ metadata: { uid, resourceVersion } }) => [uid, versionOf(resourceVersion)]),
      );
      for (const uid of this.#waiting.keys()) this.#wake(uid);
      return;
    }
    const { uid, resourceVersion } = event.pod.metadata;
    if (event.type === "DELETED") this.#versions.delete(uid);
    else this.#versions.set(uid, versionOf(resourceVersion));
    this.#wake(uid);
  }

  #wake(uid: string): void {
    for (const wake of this.#waiting.get(uid) ?? []) wake();
  }
}

const incomparable = -1n;

/** Versions of one kind of object are numbers that grow. One that is no number wakes whoever waits. */
function versionOf(text: string): bigint {
  return /^\d{1,30}$/.test(text) ? BigInt(text) : incomparable;
}
