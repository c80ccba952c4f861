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

export type CleaningStep =
  /** Sandboxes by UID, and lost candidates. */
  | { readonly do: "remove" }
  /** Put all of its output into one blob, and record that. */
  | { readonly do: "archive" }
  /** Delete the chunks of output that are in the archive. */
  | { readonly do: "trim" }
  | { readonly do: "finish" };

/**
 * What to remove next: after the end everything; while it waits for somebody, who may take days, what its runs left
 * outside. One that runs again is left alone.
 */
export function decideCleaning(view: CleaningSnapshot): CleaningStep {
  const ended = hasEnded(view.state);
  if (!ended && view.state !== "waiting") return { do: "finish" };
  const stopped = view.sandboxes.some((sandbox) => sandbox.state === "stopped");
  if (stopped || view.lost.length > 0) return { do: "remove" };
  if (!ended) return { do: "finish" };
  switch (view.output) {
    case "stored":
      return { do: "archive" };
    case "archived":
      return { do: "trim" };
    case "moved":
      return { do: "finish" };
    default:
      return view.output satisfies never;
  }
}
