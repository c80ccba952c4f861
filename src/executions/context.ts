import type { BlobStore } from "../core/blob.port.ts";
import type { HeldLease } from "../core/lease.ts";
import { type Database, view } from "../core/postgres/transition.ts";
import type { Runtime } from "../core/runtime.port.ts";
import type { Microseconds } from "../core/time.ts";
import { readSandboxSpec } from "../sandboxes/sandbox.store.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";

/** What a controller acts with. */
export interface ControllerContext {
  readonly db: Database;
  readonly installation: string;
  readonly runtimes: ReadonlyMap<string, Runtime>;
  readonly blobs: BlobStore;
  /** Where sandboxes report to, and the token that each gets (E17). */
  readonly callback: { readonly url: string; readonly token: (sandbox: Sandbox) => string };
  readonly settings: ControllerSettings;
  readonly log: (
    level: "info" | "warn" | "error",
    message: string,
    details: Readonly<Record<string, unknown>>,
  ) => void;
}

export interface ControllerSettings {
  readonly retention: Microseconds;
  readonly queueMax: number;
  /** Output kept of an attempt, all of its sandboxes together. */
  readonly logBytesMax: bigint;
  /** How long archived output is kept. */
  readonly logRetention: Microseconds;
}

/** One attempt under one lease, for as long as this controller holds it. */
export interface Attendance {
  readonly context: ControllerContext;
  readonly lease: HeldLease;
  /** Aborts when the lease is lost or the controller stops. */
  readonly signal: AbortSignal;
  readonly logs: LogKeeper;
  /** Sandboxes whose outside epoch this controller has raised to its own. A takeover does that first. */
  readonly fenced: Set<string>;
  /** Wait for a change of the job, at most `ms`, or until `also` settles. */
  readonly pause: (ms: number, also?: (signal: AbortSignal) => Promise<void>) => Promise<void>;
}

/** Stores the output of the attempt's sandboxes while this controller holds the attempt. */
export interface LogKeeper {
  /** Follow a running sandbox in the background. Again for the same one: nothing. */
  follow(sandbox: Sandbox & { readonly uid: string }): void;
  /** Read what is left of a stopped one, from where the database says. */
  drain(sandbox: Sandbox & { readonly uid: string }): Promise<void>;
  /** End a follower, which has until then stored all that it read. */
  settle(sandbox: Sandbox): Promise<void>;
  stop(): Promise<void>;
}

/** What it runs, and its digest. */
export function readSpec(
  context: Pick<ControllerContext, "db">,
  lease: Pick<HeldLease, "tenant">,
  sandbox: Pick<Sandbox, "id">,
): ReturnType<typeof readSandboxSpec> {
  const scope = { role: "controller", tenant: lease.tenant, name: "readSandboxSpec" } as const;
  return view(context.db, scope, (tx) => readSandboxSpec(tx, sandbox.id));
}

/** The runtime that a sandbox was made with. A controller claims only attempts of runtimes that it has. */
export function runtimeOf(context: ControllerContext, sandbox: Pick<Sandbox, "runtime" | "name">): Runtime {
  const runtime = context.runtimes.get(sandbox.runtime);
  if (runtime === undefined) {
    throw new Error(`${sandbox.name} runs on ${sandbox.runtime}, which this controller does not have`);
  }
  return runtime;
}
