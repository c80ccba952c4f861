import type { BlobStore } from "../core/blob.port.ts";
import type { Microseconds } from "../core/time.ts";
import type { SandboxAttendance, SandboxContext } from "../sandboxes/context.ts";

/** What a controller acts with. */
export interface ControllerContext extends SandboxContext {
  readonly blobs: BlobStore;
  readonly settings: ControllerSettings;
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
export type Attendance = SandboxAttendance<ControllerContext>;
