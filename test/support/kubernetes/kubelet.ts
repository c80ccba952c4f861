import { type ContainerEnd, expander, LocalContainer } from "./local-container.ts";
import {
  type ConditionObject,
  type ContainerObject,
  condition,
  type PodObject,
  timestamp,
} from "./pod-object.ts";
import type { PodStore } from "./pod-store.ts";

interface Managed {
  readonly uid: string;
  container: LocalContainer | null;
  end: ContainerEnd | null;
  /** Why the kubelet closes it. */
  closing: "deadline" | "deleted" | null;
  startedAt: number;
  deadline: NodeJS.Timeout | null;
  deadlineSeconds: number | null;
  killer: NodeJS.Timeout | null;
  killed: "OOMKilled" | null;
  /** The node's own words. */
  evicted: string | null;
  /** What the object should show, in order: kept while the node is cut off. */
  pending: ((pod: PodObject) => void)[];
  over: boolean;
}

export const nodeName = "double-node";
const unschedulable =
  "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
const deadlineMessage = "Pod was active on the node longer than the specified deadline";

/**
 * The scheduler and one node. It binds what has no gate, really runs the command as a local process, counts a
 * deadline from the start, ends containers with their grace, and reports in the order that a kubelet was seen
 * to report in: `terminated` while the phase is still Running, then the phase. Everything follows the store's
 * events; nothing is polled.
 */
export class Kubelet {
  /** Values of Secrets, by `name/key`. */
  readonly secrets = new Map<string, string>();
  /** Nothing is bound while false: no node has room. */
  schedules = true;
  /** Bound pods wait here, as for a volume that is missing: no container is made. */
  startsContainers = true;
  /** No registry has these. */
  readonly missingImages = new Set<string>();
  readonly #store: PodStore;
  readonly #pods = new Map<string, Managed>();
  readonly #alive = new Set<LocalContainer>();
  #mostAlive = 0;
  #connected = true;
  readonly #stopListening: () => void;

  constructor(store: PodStore) {
    this.#store = store;
    this.#stopListening = store.listen(({ pod }) => {
      setImmediate(() => this.#sync(pod.metadata.uid));
    });
  }

  container(uid: string): LocalContainer | null {
    return this.#pods.get(uid)?.container ?? null;
  }

  /** Containers that run, whether an object shows them or not. */
  get running(): number {
    return this.#alive.size;
  }

  /** The most that ever did at once. */
  get mostRunning(): number {
    return this.#mostAlive;
  }

  /** It used more memory than it may: the kernel kills it. */
  killForMemory(uid: string): void {
    const managed = this.#pods.get(uid);
    if (managed === undefined) return;
    managed.killed = "OOMKilled";
    managed.container?.kill();
  }

  /** The node is short of something and ends what runs there. */
  evict(uid: string, message: string): void {
    const managed = this.#pods.get(uid);
    if (managed === undefined) return;
    managed.evicted = message;
    managed.container?.kill();
  }

  /** The node is cut off: its containers run on and nothing is reported. The control plane marks its pods. */
  disconnect(): void {
    this.#connected = false;
    for (const { uid } of this.#pods.values()) {
      this.#store.report(uid, (pod) => {
        if (pod.status.phase !== "Running") return;
        setCondition(pod, condition("Ready", "False"));
      });
    }
  }

  /** It is back: it reports what happened meanwhile and carries out what was asked. */
  connect(): void {
    this.#connected = true;
    for (const managed of this.#pods.values()) {
      for (const change of managed.pending.splice(0)) this.#store.report(managed.uid, change);
      if (managed.container !== null && managed.end === null && managed.closing === null) {
        this.#store.report(managed.uid, (pod) => setCondition(pod, condition("Ready", "True")));
      }
      this.#sync(managed.uid);
    }
    this.syncAll();
  }

  /** After `schedules` or `startsContainers` was changed. */
  syncAll(): void {
    for (const uid of this.#store.uids()) this.#sync(uid);
  }

  /** PodGC: what was deleted without ever having a node is called Failed. */
  collectGarbage(): void {
    for (const uid of this.#store.uids()) {
      this.#store.report(uid, (pod) => {
        if (pod.metadata.deletionTimestamp === undefined || pod.spec.nodeName !== undefined) return;
        pod.status.phase = "Failed";
      });
    }
  }

  async close(): Promise<void> {
    this.#stopListening();
    const ends: Promise<unknown>[] = [];
    for (const managed of this.#pods.values()) {
      this.#clear(managed);
      managed.container?.kill();
      if (managed.container !== null) ends.push(managed.container.ended);
    }
    await Promise.all(ends);
  }

  #sync(uid: string): void {
    const pod = this.#store.find(uid);
    if (pod === undefined) {
      this.#forget(uid);
      return;
    }
    if (pod.spec.nodeName === undefined) {
      this.#schedule(pod);
      return;
    }
    if (!this.#connected) return;
    const managed = this.#pods.get(uid) ?? this.#take(pod);
    this.#watchDeadline(managed, pod);
    if (managed.container === null && !managed.over && managed.closing === null) this.#start(managed, pod);
    if (pod.metadata.deletionTimestamp !== undefined) this.#deleted(managed, pod);
  }

  #schedule(pod: PodObject): void {
    const held = (pod.spec.schedulingGates ?? []).length > 0;
    if (held || pod.metadata.deletionTimestamp !== undefined) return;
    this.#store.report(pod.metadata.uid, (bound) => {
      if (!this.schedules) {
        setCondition(bound, condition("PodScheduled", "False", "Unschedulable", unschedulable));
        return;
      }
      bound.spec.nodeName = nodeName;
      setCondition(bound, condition("PodScheduled", "True"));
    });
  }

  #take(pod: PodObject): Managed {
    const { uid } = pod.metadata;
    const managed: Managed = {
      uid,
      container: null,
      end: null,
      closing: null,
      startedAt: Date.now(),
      deadline: null,
      deadlineSeconds: null,
      killer: null,
      killed: null,
      evicted: null,
      pending: [],
      over: false,
    };
    this.#pods.set(uid, managed);
    this.#report(managed, ({ spec, status, metadata }) => {
      status.startTime = timestamp(managed.startedAt);
      const names = spec.containers.map(({ name }) => name).join(" ");
      const words = `containers with unready status: [${names}]`;
      status.conditions = [
        condition("PodReadyToStartContainers", "False"),
        condition("Initialized", "True"),
        condition("Ready", "False", "ContainersNotReady", words),
        condition("ContainersReady", "False", "ContainersNotReady", words),
        ...status.conditions.filter(({ type }) => type === "PodScheduled"),
      ].map((item) => ({ ...item, observedGeneration: metadata.generation }));
      setState(status, spec.containers[0], { waiting: { reason: "ContainerCreating" } });
    });
    return managed;
  }

  #start(managed: Managed, pod: PodObject): void {
    const [container] = pod.spec.containers;
    if (container === undefined || !this.startsContainers) return;
    const waits = this.#imageTrouble(container.image);
    if (waits !== null) {
      this.#report(managed, ({ status }) => setState(status, container, { waiting: waits }));
      return;
    }
    const environment = this.#environment(container);
    if (typeof environment === "string") {
      const waiting = { reason: "CreateContainerConfigError", message: environment };
      this.#report(managed, ({ status }) => setState(status, container, { waiting }));
      return;
    }
    const running = new LocalContainer(container, environment);
    managed.container = running;
    this.#alive.add(running);
    this.#mostAlive = Math.max(this.#mostAlive, this.#alive.size);
    void running.ended.then(() => this.#alive.delete(running));
    void running.started.then((started) => {
      if (started) this.#report(managed, (now) => showRunning(now, container, running.id));
    });
    void running.ended.then((end) => this.#containerEnded(managed, container, running, end));
  }

  #imageTrouble(image: string): { readonly reason: string; readonly message: string } | null {
    if (/[A-Z]/.test(image)) {
      const message = `Failed to apply default image tag "${image}": couldn't parse image name "${image}": invalid reference format: repository name must be lowercase`;
      return { reason: "InvalidImageName", message };
    }
    if (!this.missingImages.has(image)) return null;
    const message = `Back-off pulling image "${image}": ErrImagePull: failed to resolve reference "${image}": not found`;
    return { reason: "ImagePullBackOff", message };
  }

  /** A string: what is missing. */
  #environment(container: ContainerObject): Record<string, string> | string {
    const environment: Record<string, string> = {};
    for (const { name, value, valueFrom } of container.env ?? []) {
      if (valueFrom === undefined) {
        environment[name] = expander(environment)(value ?? "");
        continue;
      }
      const { name: secret, key } = valueFrom.secretKeyRef;
      const found = this.secrets.get(`${secret}/${key}`);
      if (found === undefined) return `secret "${secret}" not found`;
      environment[name] = found;
    }
    return environment;
  }

  #containerEnded(
    managed: Managed,
    container: ContainerObject,
    running: LocalContainer,
    end: ContainerEnd,
  ): void {
    managed.end = end;
    const succeeded = end.exitCode === 0 && managed.closing !== "deadline";
    const reason = succeeded ? "PodCompleted" : "PodFailed";
    this.#report(managed, (pod) => {
      setCondition(pod, condition("Ready", "False", reason));
      setCondition(pod, condition("ContainersReady", "False", reason));
      const { exitCode, message } = end;
      const terminated = {
        exitCode,
        reason: managed.killed ?? end.reason,
        ...(message === undefined ? {} : { message }),
        startedAt: timestamp(end.startedAt ?? 0),
        finishedAt: timestamp(end.finishedAt),
        containerID: running.id,
      };
      setState(pod.status, container, { terminated }, running.id);
    });
    setImmediate(() => this.#finish(managed, succeeded));
  }

  #finish(managed: Managed, succeeded: boolean): void {
    managed.over = true;
    this.#clear(managed);
    this.#report(managed, (pod) => {
      pod.status.phase = succeeded ? "Succeeded" : "Failed";
      if (managed.closing === "deadline") {
        pod.status.reason = "DeadlineExceeded";
        pod.status.message = deadlineMessage;
      }
      if (managed.evicted !== null) {
        pod.status.reason = "Evicted";
        pod.status.message = managed.evicted;
      }
      setCondition(pod, condition("PodReadyToStartContainers", "False"));
    });
    setImmediate(() => this.#settleDeletion(managed));
  }

  /** A deadline counts from the start, and may be lowered at any time. */
  #watchDeadline(managed: Managed, pod: PodObject): void {
    const seconds = pod.spec.activeDeadlineSeconds ?? null;
    if (seconds === managed.deadlineSeconds || seconds === null || managed.over) return;
    managed.deadlineSeconds = seconds;
    if (managed.deadline !== null) clearTimeout(managed.deadline);
    const left = Math.max(0, managed.startedAt + seconds * 1000 - Date.now());
    managed.deadline = setTimeout(() => this.#close(managed, "deadline"), left);
  }

  #deleted(managed: Managed, pod: PodObject): void {
    if (managed.over) this.#settleDeletion(managed);
    else if (managed.closing === null)
      this.#close(managed, "deleted", pod.metadata.deletionGracePeriodSeconds);
  }

  /** A grace that has begun is not shortened. */
  #close(managed: Managed, why: "deadline" | "deleted", asked?: number): void {
    const pod = this.#store.find(managed.uid);
    if (pod === undefined || managed.over || managed.closing !== null) return;
    managed.closing = why;
    if (why === "deadline") {
      this.#report(managed, (now) => {
        setCondition(now, condition("Ready", "False", "PodFailed"));
        setCondition(now, condition("ContainersReady", "False", "PodFailed"));
      });
    }
    const { container } = managed;
    if (container === null) {
      this.#closeEmpty(managed);
      return;
    }
    container.terminate();
    const grace = asked ?? pod.spec.terminationGracePeriodSeconds;
    managed.killer = setTimeout(() => container.kill(), grace * 1000);
  }

  /** It had no container: the phase comes first, with a container that waits, and then the kubelet looks for it. */
  #closeEmpty(managed: Managed): void {
    this.#report(managed, (pod) => {
      setCondition(pod, condition("Ready", "False", "PodFailed"));
      setCondition(pod, condition("ContainersReady", "False", "PodFailed"));
    });
    this.#finish(managed, false);
    setImmediate(() => {
      this.#report(managed, ({ spec, status }) => {
        const terminated = {
          exitCode: 137,
          reason: "ContainerStatusUnknown",
          message: "The container could not be located when the pod was terminated",
          startedAt: null,
          finishedAt: null,
        };
        setState(status, spec.containers[0], { terminated });
      });
    });
  }

  /** The log of what still ran when it was deleted is lost; of what had finished it stays. */
  #settleDeletion(managed: Managed): void {
    if (!this.#connected || this.#store.find(managed.uid)?.metadata.deletionTimestamp === undefined) return;
    if (managed.closing === "deleted") managed.container?.log.lose(managed.container.id);
    this.#store.report(managed.uid, ({ metadata }) => {
      metadata.deletionGracePeriodSeconds = 0;
    });
  }

  #report(managed: Managed, change: (pod: PodObject) => void): void {
    if (this.#connected) this.#store.report(managed.uid, change);
    else managed.pending.push(change);
  }

  /** Its object is gone: what runs of it is killed. */
  #forget(uid: string): void {
    const managed = this.#pods.get(uid);
    if (managed === undefined || !this.#connected) return;
    this.#clear(managed);
    managed.container?.kill();
    this.#pods.delete(uid);
  }

  #clear(managed: Managed): void {
    if (managed.deadline !== null) clearTimeout(managed.deadline);
    if (managed.killer !== null) clearTimeout(managed.killer);
  }
}

function showRunning(pod: PodObject, container: ContainerObject, id: string): void {
  pod.status.phase = "Running";
  for (const type of ["PodReadyToStartContainers", "Ready", "ContainersReady"]) {
    setCondition(pod, condition(type, "True"));
  }
  setState(pod.status, container, { running: { startedAt: timestamp() } }, id);
}

function setState(
  status: PodObject["status"],
  container: ContainerObject | undefined,
  state: Record<string, unknown>,
  containerID?: string,
): void {
  if (container === undefined) return;
  const running = "running" in state;
  status.containerStatuses = [
    {
      name: container.name,
      state,
      lastState: {},
      ready: running,
      restartCount: 0,
      image: container.image,
      imageID: "",
      ...(containerID === undefined ? {} : { containerID }),
      started: running,
    },
  ];
}

function setCondition(pod: PodObject, wanted: ConditionObject): void {
  const { conditions } = pod.status;
  const at = conditions.findIndex(({ type }) => type === wanted.type);
  const stood = conditions[at];
  const observedGeneration = pod.metadata.generation;
  if (stood === undefined) {
    conditions.push({ ...wanted, observedGeneration });
    return;
  }
  const same = stood.status === wanted.status;
  const lastTransitionTime = same ? stood.lastTransitionTime : wanted.lastTransitionTime;
  conditions[at] = { ...wanted, lastTransitionTime, observedGeneration };
}
