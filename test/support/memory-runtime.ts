import { assertOutsideTransition } from "../../src/core/outside.ts";
import {
  type ExternalObject,
  type LogRecord,
  type Observation,
  type PrepareRequest,
  type Runtime,
  RuntimeRefusal,
  type SandboxRef,
} from "../../src/core/runtime.port.ts";
import { instant } from "../../src/core/time.ts";

/** What a sandbox does once it is released: what it writes, and how it exits. */
export type Script = (env: Readonly<Record<string, string>>) => {
  readonly lines: readonly string[];
  readonly exitCode: number;
};

interface Held {
  readonly request: PrepareRequest;
  readonly uid: string;
  epoch: bigint;
  ran: { readonly lines: readonly string[]; readonly exitCode: number } | null;
  stopped: boolean;
}

/** A runtime whose objects are rows of a map: nothing is started, so hundreds cost nothing. */
export interface MemoryRuntime extends Runtime {
  /** How often each object started, by its name. */
  readonly starts: ReadonlyMap<string, number>;
  readonly objects: () => number;
}

/** `fault` is asked before each call and may throw what the world throws. */
export function memoryRuntime(script: Script, fault: (call: string) => void): MemoryRuntime {
  const objects = new Map<string, Held>();
  const starts = new Map<string, number>();
  let made = 0;
  const call = (name: string) => {
    assertOutsideTransition(`runtime.${name}`);
    fault(name);
  };
  const found = ({ name, uid }: SandboxRef): Held => {
    const object = objects.get(name);
    if (object === undefined) throw new RuntimeRefusal("gone", `${name} is gone`);
    if (object.uid !== uid) throw new RuntimeRefusal("wrong_uid", `${name} is another`);
    return object;
  };
  const fenced = (object: Held, epoch: bigint): void => {
    if (object.epoch > epoch) throw new RuntimeRefusal("superseded", "a higher epoch was here");
    object.epoch = epoch;
  };

  return {
    kind: "process",
    starts,
    objects: () => objects.size,
    async prepare(request) {
      call("prepare");
      const there = objects.get(request.name);
      if (there !== undefined) {
        if (there.request.specDigest !== request.specDigest) {
          throw new RuntimeRefusal("name_taken", `${request.name} is another`);
        }
        fenced(there, request.epoch);
        return { uid: there.uid };
      }
      made += 1;
      const uid = `uid-${made}`;
      objects.set(request.name, { request, uid, epoch: request.epoch, ran: null, stopped: false });
      return { uid };
    },
    async fence(ref, epoch) {
      call("fence");
      fenced(found(ref), epoch);
    },
    async release(ref, epoch) {
      call("release");
      const object = found(ref);
      fenced(object, epoch);
      if (object.stopped) throw new RuntimeRefusal("stopping", `${ref.name} is stopping`);
      if (object.ran !== null) return;
      starts.set(ref.name, (starts.get(ref.name) ?? 0) + 1);
      object.ran = script(object.request.spec.env);
    },
    async observe(ref): Promise<Observation> {
      call("observe");
      const object = objects.get(ref.name);
      if (object === undefined || object.uid !== ref.uid) return { state: "absent" };
      const { uid, ran, epoch, stopped } = object;
      if (ran === null && !stopped) return { state: "held", uid, epoch };
      const at = { signal: null, startedAt: null, finishedAt: null };
      const outcome =
        ran === null
          ? ({ kind: "never_started", exitCode: null, message: "stopped", ...at } as const)
          : ({
              kind: "exited",
              exitCode: ran.exitCode,
              message: `exited with ${ran.exitCode}`,
              ...at,
            } as const);
      return { state: "stopped", uid, outcome, proof: "it is in memory alone" };
    },
    async changed() {
      call("changed");
    },
    async stop(ref, epoch) {
      call("stop");
      const object = found(ref);
      fenced(object, epoch);
      object.stopped = true;
    },
    async *logs(ref, { cursor }): AsyncGenerator<LogRecord> {
      call("logs");
      if (cursor !== null) return;
      const bytes = Buffer.from((found(ref).ran?.lines ?? []).map((line) => `${line}\n`).join(""));
      if (bytes.length > 0) yield { cursor: "all", stream: "stdout", at: instant(0n), bytes };
    },
    async find(name) {
      call("find");
      return objects.get(name)?.uid ?? null;
    },
    secretValues: () => Promise.resolve([]),
    async remove(ref) {
      call("remove");
      if (objects.get(ref.name)?.uid === ref.uid) objects.delete(ref.name);
    },
    async *list(): AsyncGenerator<ExternalObject> {
      call("list");
      for (const [name, { uid, epoch, request }] of objects) {
        const { tenant, sandbox } = request;
        yield { name, uid, epoch, tenant, sandbox, createdAt: instant(0n) };
      }
    },
  };
}
