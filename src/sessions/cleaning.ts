import type { BlobKey } from "../core/blob.port.ts";
import type { OutputState } from "../sandboxes/log-archive.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { type ActivationState, hasEnded } from "./activation.ts";

/** Everything that decides what of an activation is removed next, read in one snapshot. */
export interface CleaningSnapshot {
  readonly session: string;
  readonly state: ActivationState;
  readonly sandboxes: readonly Sandbox[];
  /** Candidates that became no revision. */
  readonly lost: readonly LostCandidate[];
  readonly output: OutputState;
}

export interface LostCandidate {
  readonly sandbox_id: string;
  readonly sha256: string;
  readonly blob_key: BlobKey;
}

/**
 * `remove`: sandboxes by UID, and lost candidates. `archive`: put all of its output into one blob, and record that.
 * `trim`: delete the chunks of output that are in the archive. `finish`: nothing is left to remove now.
 */
export type CleaningStep = "remove" | "archive" | "trim" | "finish";

const output: Readonly<Record<OutputState, readonly CleaningStep[]>> = {
  stored: ["archive", "trim"],
  archived: ["trim"],
  moved: [],
};

/**
 * What to remove, in this order: after the end everything; while it waits for somebody, who may take days, what its
 * runs left outside. One that runs again is left alone. The archive is recorded before a chunk goes (E19).
 */
export function cleaningSteps(view: CleaningSnapshot): readonly CleaningStep[] {
  const ended = hasEnded(view.state);
  if (!ended && view.state !== "waiting") return ["finish"];
  const stopped = view.sandboxes.some((sandbox) => sandbox.state === "stopped");
  const left = stopped || view.lost.length > 0;
  return [...(left ? (["remove"] as const) : []), ...(ended ? output[view.output] : []), "finish"];
}
