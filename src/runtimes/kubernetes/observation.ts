import type { Observation } from "../../core/runtime.port.ts";
import { instant } from "../../core/time.ts";
import { outcomeOf } from "./outcome.ts";
import type { Pod } from "./pod.ts";
import { epochOf, hasNode, isDeleting, isHeld, mainContainer, stopMarkOf, time } from "./pod-marks.ts";
import { conditionOf, kubeletClosed, nodeIsSilent, proofOf } from "./proof.ts";

/** What a pod's object shows. What it can't show is `unproven`: then the slot stays taken (E8). */
export function observationOf(pod: Pod): Observation {
  const { uid } = pod.metadata;
  const proof = proofOf(pod);
  if (proof.stopped) return { state: "stopped", uid, outcome: outcomeOf(pod), proof: proof.proof };
  if (isHeld(pod) && !hasNode(pod)) return { state: "held", uid, epoch: epochOf(pod) };
  const reason = doubtOf(pod);
  if (reason !== null) return { state: "unproven", reason };
  if (isDeleting(pod) || stopMarkOf(pod) !== null) return { state: "stopping", uid };
  const main = pod.status?.containerStatuses?.find(({ name }) => name === mainContainer);
  const started = time(main?.state?.running?.startedAt);
  return { state: "running", uid, startedAt: started === null ? null : instant(BigInt(started) * 1000n) };
}

function doubtOf(pod: Pod): string | null {
  if (nodeIsSilent(pod)) return `its node ${pod.spec.nodeName ?? ""} does not report: it may run on there`;
  const phase = pod.status?.phase;
  if ((phase === "Failed" || phase === "Succeeded") && !kubeletClosed(pod)) {
    const by = conditionOf(pod, "DisruptionTarget")?.reason;
    const who = by === undefined ? "the control plane" : `the control plane (${by})`;
    return `${who} calls it ${phase}, but its node has not reported that it ended`;
  }
  return null;
}
