import type { SandboxId, TenantId } from "./ids.ts";
import type { Instant, Microseconds } from "./time.ts";

/**
 * Where sandboxes run: processes of this host, pods of a cluster, a sandbox service. A sandbox is one
 * external object that runs one command once. The protocol that fences it is in `sandboxes/reconcile.ts`:
 * the object is created *held*, its UID is committed, and only then is it *released*, under a check of UID
 * and epoch that is atomic where the object lives. Every method is idempotent, asserts that no transition is
 * open, and is bounded by the signal that it is given.
 */
export interface Runtime {
  /** `process`, `kubernetes`, `opensandbox`: stored with each sandbox, so that the right one is asked later. */
  readonly kind: string;

  /**
   * Create the object held, or adopt the one that already has this name and the same `specDigest`, and raise
   * its epoch to `epoch`. Nothing inside it starts. Refuses with `name_taken` when the name belongs to an
   * object of another digest, `superseded` when its epoch is higher already.
   */
  prepare(request: PrepareRequest, signal: AbortSignal): Promise<{ readonly uid: string }>;

  /** Raise the object's epoch, which a takeover does first. `superseded` when it is higher already. */
  fence(ref: SandboxRef, epoch: bigint, signal: AbortSignal): Promise<void>;

  /**
   * Let it start, if UID and epoch are still these and it is not being stopped: one atomic check where the
   * object lives. Released already by the same epoch or an older one is success. `limit` is what is left of
   * the deadline; the object ends itself after that, whether anybody watches or not.
   */
  release(ref: SandboxRef, epoch: bigint, limit: Microseconds, signal: AbortSignal): Promise<void>;

  /** Look, once. Never guesses: what can't be shown is `unproven` with its reason. */
  observe(ref: SandboxRef, signal: AbortSignal): Promise<Observation>;

  /** Resolve when something about the object may have changed, or the signal aborts. A hint: look afterwards. */
  changed(ref: SandboxRef, signal: AbortSignal): Promise<void>;

  /** Begin to stop it, keeping its logs. A held one then never starts. The proof comes from `observe`. */
  stop(ref: SandboxRef, epoch: bigint, signal: AbortSignal): Promise<void>;

  /**
   * Its output after `cursor` (null: from the beginning), in order. With `follow` it goes on until the
   * sandbox has stopped and all is read, else it ends with what is there. A cursor is opaque, at most 200
   * characters, and belongs to this UID.
   */
  logs(
    ref: SandboxRef,
    options: { readonly cursor: string | null; readonly follow: boolean },
    signal: AbortSignal,
  ): AsyncIterable<LogRecord>;

  /** The UID of the object with this name, recorded by anybody or not; null when there is none. */
  find(name: string, signal: AbortSignal): Promise<string | null>;

  /** The values behind a sandbox's secret references, as far as they can be read here, to be masked in its output (E15). */
  secretValues(spec: Pick<SandboxSpec, "secrets">, signal: AbortSignal): Promise<readonly string[]>;

  /** Delete the object with this UID and everything of it. Gone already is success; another UID is untouched. */
  remove(ref: SandboxRef, signal: AbortSignal): Promise<void>;

  /** All objects of this installation, for the sweep of orphans (E21). */
  list(signal: AbortSignal): AsyncIterable<ExternalObject>;
}

/** A sandbox as the outside knows it: the name that we gave it and the UID that the world gave back. */
export interface SandboxRef {
  readonly name: string;
  readonly uid: string;
}

/** What is run. This, in canonical JSON, is what `specDigest` digests: nothing secret and nothing that changes on a retry. */
export interface SandboxSpec {
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Environment names whose values the runtime reads from a reference; the values are in no plan, row or log. */
  readonly secrets: Readonly<Record<string, SecretReference>>;
  readonly image: string | null;
  /** How long a stop waits between asking and killing. Fixed at creation. */
  readonly grace: Microseconds;
  readonly limits: {
    readonly cpuMillicores: number;
    readonly memoryBytes: number;
    readonly diskBytes: number;
  };
}

export interface SecretReference {
  readonly name: string;
  readonly key: string;
}

export interface PrepareRequest {
  readonly name: string;
  readonly installation: string;
  readonly tenant: TenantId;
  readonly sandbox: SandboxId;
  readonly spec: SandboxSpec;
  /** SHA-256 in lower-case hex. */
  readonly specDigest: string;
  readonly epoch: bigint;
  /** Environment outside the digest: callback address and derived token. Never logged. */
  readonly privateEnv: Readonly<Record<string, string>>;
  /** A held object that nobody released by then ends itself, so that nothing waits for ever. */
  readonly holdLimit: Microseconds;
}

export type Observation =
  | { readonly state: "absent" }
  | { readonly state: "held"; readonly uid: string; readonly epoch: bigint }
  | { readonly state: "running"; readonly uid: string; readonly startedAt: Instant | null }
  | { readonly state: "stopping"; readonly uid: string }
  /** Stopped, with evidence: nothing of it runs and nothing of it can start again. */
  | {
      readonly state: "stopped";
      readonly uid: string;
      readonly outcome: SandboxOutcome;
      readonly proof: string;
    }
  /** The world can't be asked. Not the same as stopped: the slot stays taken. */
  | { readonly state: "unproven"; readonly reason: string };

export interface SandboxOutcome {
  /**
   * `exited`: by itself, with `exitCode`. `stopped`: we asked. `never_started`: ended while held.
   * `deadline`: its own limit. `lost`: ended without a record. `unknown`: stopped, but how can't be told.
   */
  readonly kind:
    | "exited"
    | "signaled"
    | "out_of_memory"
    | "evicted"
    | "deadline"
    | "stopped"
    | "never_started"
    | "lost"
    | "start_failed"
    | "unknown";
  readonly exitCode: number | null;
  readonly signal: string | null;
  /** For a person: one sentence, at most 1,000 characters. */
  readonly message: string;
  readonly startedAt: Instant | null;
  readonly finishedAt: Instant | null;
}

export interface LogRecord {
  /** Where to go on after this record. */
  readonly cursor: string;
  readonly stream: "stdout" | "stderr";
  readonly at: Instant;
  /** As the sandbox wrote it: any bytes, at most 64 KiB. */
  readonly bytes: Uint8Array;
}

export interface ExternalObject {
  readonly name: string;
  readonly uid: string;
  readonly tenant: string | null;
  readonly sandbox: string | null;
  readonly epoch: bigint;
  readonly createdAt: Instant;
}

/** Why a runtime refused. Anything else that it throws is a fault of the world, to be tried again. */
export class RuntimeRefusal extends Error {
  override readonly name = "RuntimeRefusal";
  readonly reason: "superseded" | "name_taken" | "wrong_uid" | "stopping" | "gone" | "invalid";
  constructor(reason: RuntimeRefusal["reason"], message: string) {
    super(message);
    this.reason = reason;
  }
}
