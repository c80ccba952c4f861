import type { BlobStore } from "../core/blob.port.ts";
import type { Microseconds } from "../core/time.ts";
import type { SandboxAttendance, SandboxContext } from "../sandboxes/context.ts";

/** What a controller of sessions acts with. */
export interface SessionContext extends SandboxContext {
  readonly blobs: BlobStore;
  readonly settings: SandboxContext["settings"] & {
    /** Activations of one tenant at work at once, over all controllers. */
    readonly runsMax: number;
    /** How long archived output is kept. */
    readonly logRetention: Microseconds;
  };
}

/** One session, or one activation that has ended, under one lease. */
export type SessionAttendance = SandboxAttendance<SessionContext>;
