import type { HeldLease } from "../core/lease.ts";
import { type Database, view } from "../core/postgres/transition.ts";
import type { Runtime } from "../core/runtime.port.ts";
import type { SandboxRecords } from "./record.store.ts";
import { readSandboxSpec } from "./sandbox.store.ts";
import type { Sandbox } from "./sandbox.ts";

/** What a controller of anything that runs in sandboxes acts with. */
export interface SandboxContext {
  readonly db: Database;
  readonly installation: string;
  readonly runtimes: ReadonlyMap<string, Runtime>;
  /** Where sandboxes report to, and the token that each gets (E17). */
  readonly callback: { readonly url: string; readonly token: (sandbox: Sandbox) => string };
  readonly settings: {
    /** Output kept of an owner, all of its sandboxes together. */
    readonly logBytesMax: bigint;
  };
  readonly log: (
    level: "info" | "warn" | "error",
    message: string,
    details: Readonly<Record<string, unknown>>,
  ) => void;
}

/** The sandboxes of one owner under one lease, for as long as this controller holds it. */
export interface SandboxAttendance<Context extends SandboxContext = SandboxContext> {
  readonly context: Context;
  readonly lease: HeldLease;
  /** Aborts when the lease is lost or the controller stops. */
  readonly signal: AbortSignal;
  readonly logs: LogKeeper;
  readonly records: SandboxRecords;
  /** Sandboxes whose outside epoch this controller has raised to its own. A takeover does that first. */
  readonly fenced: Set<string>;
  /** Why a sandbox can't be created, by its last try. */
  readonly obstacles: Map<string, string>;
  /** Wait for a change of the owner, at most `ms`, or until `also` settles. */
  readonly pause: (ms: number, also?: (signal: AbortSignal) => Promise<void>) => Promise<void>;
}

/** Stores the output of an owner's sandboxes while this controller holds it. */
export interface LogKeeper {
  /** Follow a running sandbox in the background. Again for the same one: nothing. */
  follow(sandbox: NamedSandbox): void;
  /** Read what is left of a stopped one, from where the database says. */
  drain(sandbox: NamedSandbox): Promise<void>;
  /** End a follower, which has until then stored all that it read. */
  settle(sandbox: Sandbox): Promise<void>;
  stop(): Promise<void>;
}

/** A sandbox whose UID is recorded. */
export type NamedSandbox = Sandbox & { readonly uid: string };

/** What it runs, and its digest. */
export function readSpec(
  context: Pick<SandboxContext, "db">,
  lease: Pick<HeldLease, "tenant">,
  sandbox: Pick<Sandbox, "id">,
): ReturnType<typeof readSandboxSpec> {
  const scope = { role: "controller", tenant: lease.tenant, name: "readSandboxSpec" } as const;
  return view(context.db, scope, (tx) => readSandboxSpec(tx, sandbox.id));
}

/** The runtime that a sandbox was made with. A controller claims only owners of runtimes that it has. */
export function runtimeOf(
  context: Pick<SandboxContext, "runtimes">,
  sandbox: Pick<Sandbox, "runtime" | "name">,
): Runtime {
  const runtime = context.runtimes.get(sandbox.runtime);
  if (runtime === undefined) {
    throw new Error(`${sandbox.name} runs on ${sandbox.runtime}, which this controller does not have`);
  }
  return runtime;
}
