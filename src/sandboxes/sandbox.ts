import { createHash } from "node:crypto";
import { canonicalDigest } from "../core/canonical.ts";
import type { SandboxId, TenantId } from "../core/ids.ts";
import type { SandboxSpec } from "../core/runtime.port.ts";
import type { Instant } from "../core/time.ts";

/** The life of a sandbox attempt. The outcome stands beside it, and `stop_unproven` is a condition, not a state. */
export type SandboxState = "planned" | "held" | "released" | "stopping" | "stopped" | "removed";

/** What moves a sandbox on. */
export type SandboxEvent = "hold" | "release" | "stop" | "prove" | "remove";

/**
 * The whole machine. `null`: the event can't happen in that state. The database refuses the same moves
 * (`sandbox_attempts_transitions`), and a test holds the two to each other.
 */
export const sandboxTransitions: Readonly<
  Record<SandboxState, Readonly<Record<SandboxEvent, SandboxState | null>>>
> = {
  // A planned one whose UID was never recorded was never released: it can be settled without asking the world.
  planned: { hold: "held", release: null, stop: null, prove: "stopped", remove: null },
  held: { hold: null, release: "released", stop: "stopping", prove: "stopped", remove: null },
  released: { hold: null, release: null, stop: "stopping", prove: "stopped", remove: null },
  stopping: { hold: null, release: null, stop: null, prove: "stopped", remove: null },
  stopped: { hold: null, release: null, stop: null, prove: null, remove: "removed" },
  removed: { hold: null, release: null, stop: null, prove: null, remove: null },
};

/** What a sandbox gets when nobody says otherwise. */
export const sandboxDefaults = {
  grace: "10s",
  cpuMillicores: 1000,
  memoryBytes: 1_073_741_824,
  diskBytes: 4_294_967_296,
} as const;

/** Nothing of it runs, and nothing of it can start, by evidence. */
export function isProvenStopped(state: SandboxState): boolean {
  return state === "stopped" || state === "removed";
}

/** A sandbox as its controller reads it. Which step of its owner it runs is the owner's business. */
export interface Sandbox {
  readonly id: SandboxId;
  readonly tenant: TenantId;
  readonly owner: SandboxOwner;
  readonly step: string;
  readonly ordinal: number;
  readonly name: string;
  readonly runtime: string;
  readonly state: SandboxState;
  readonly uid: string | null;
  readonly deadline: Instant;
  readonly plannedAt: Instant;
  readonly releasedAt: Instant | null;
  readonly stoppedAt: Instant | null;
  readonly removedAt: Instant | null;
  readonly stopReason: string | null;
  readonly outcome: string | null;
  readonly exitCode: number | null;
  readonly message: string | null;
  readonly unprovenSince: Instant | null;
  readonly log: LogProgress;
}

export interface SandboxOwner {
  readonly kind: "execution" | "activation";
  readonly id: string;
}

/** How far its output is stored. Complete, or its loss recorded, before its owner may end (E10). */
export interface LogProgress {
  /** Of the assembler in log.ts: which runtime record comes next, and how much of it is stored already. */
  readonly position: string | null;
  readonly seq: bigint;
  readonly bytes: bigint;
  readonly truncated: boolean;
  readonly settled: boolean;
}

/**
 * The name that the outside object gets: a function of who owns it, so that a controller that finds its own
 * half-done work, or that of a dead one, finds the same object (a valid Kubernetes name; at most 63 characters).
 */
export function sandboxName(identity: {
  readonly installation: string;
  readonly tenant: TenantId;
  readonly owner: SandboxOwner;
  readonly step: string;
  readonly ordinal: number;
}): string {
  const { installation, tenant, owner, step, ordinal } = identity;
  const hash = createHash("sha256")
    .update([installation, tenant, owner.kind, owner.id, step, ordinal].join("/"))
    .digest("hex");
  return `hf-${step}-${hash.slice(0, 20)}`;
}

/** Digest of what is run. Nothing secret, and nothing that changes when the same object is made again. */
export function sandboxSpecDigest(spec: SandboxSpec): string {
  return canonicalDigest({ schema: "holdfast.sandbox.v1", ...spec, grace: String(spec.grace) });
}
