import { performSandboxStep } from "../sandboxes/reconcile.ts";
import { lastCallOf } from "../sandboxes/step.ts";
import {
  type Activation,
  candidateMissing,
  failed,
  type SessionSnapshot,
  type SessionStep,
} from "./activation.ts";
import { candidateFault } from "./candidate.ts";
import { commitCheckpoint, readProposedCandidate, recordVerified } from "./checkpoint.store.ts";
import type { SessionAttendance } from "./context.ts";
import { readOutput } from "./output.store.ts";
import { type Move, moveActivation, planAgain, rest, startRun } from "./run.store.ts";

/** Do one step: the outside first, then the record under the fence. `done`: the lease is given up. */
export async function perform(
  attendance: SessionAttendance,
  view: SessionSnapshot,
  step: SessionStep,
): Promise<"done" | "again"> {
  const { context, lease } = attendance;
  const { db, installation } = context;
  const move = async (activation: Activation, to: Move) => {
    await moveActivation(db, lease, activation, to);
    return "again" as const;
  };
  switch (step.do) {
    case "hold":
    case "release":
    case "watch":
    case "stop":
    case "prove":
    case "abandon":
    case "drain": {
      const lastCall = lastCallOf(step.sandbox.deadline, view.activation?.grace ?? 0n);
      await performSandboxStep(attendance, { ...view, lastCall }, step);
      return "again";
    }
    case "start": {
      const { runsMax } = context.settings;
      const start = { activation: step.activation, installation, runsMax };
      return (await startRun(db, lease, start)) === "no_room" ? "done" : "again";
    }
    case "plan":
      await planAgain(db, lease, { ...step, installation });
      return "again";
    case "read":
      await readOutput(db, lease, step.activation.uid, step);
      return "again";
    case "propose":
      return move(step.activation, { to: "committing" });
    case "verify":
      await verify(attendance, view, step.activation);
      return "again";
    case "commit": {
      const { uid, destinations } = step.activation;
      await commitCheckpoint(db, lease, { uid, expectedHead: view.head, destinations });
      return "again";
    }
    case "wait":
      return move(step.activation, { to: "waiting" });
    case "retry":
      return move(step.activation, { to: "queued", failure: step.failure, at: step.at });
    case "fail":
      return move(step.activation, { to: "failed", failure: step.failure });
    case "cancel":
      return move(step.activation, { to: "cancelled" });
    case "rest":
      return (await rest(db, lease, view, step)) ? "done" : "again";
    default:
      return step satisfies never;
  }
}

/** The store is asked before the fact is committed (S13), and outside any transaction (S10). */
async function verify(
  { context, lease, signal }: SessionAttendance,
  view: SessionSnapshot,
  activation: Activation,
): Promise<void> {
  const candidate = await readProposedCandidate(context.db, lease, activation.uid);
  const fault =
    candidate === undefined ? candidateMissing : await candidateFault(context.blobs, candidate, signal);
  if (candidate !== undefined && fault === null) {
    await recordVerified(context.db, lease, activation.uid, candidate);
    return;
  }
  const failure = fault ?? candidateMissing;
  const next = failed(view, activation, failure);
  const move: Move = next.do === "retry" ? { to: "queued", ...next } : { to: "failed", failure };
  await moveActivation(context.db, lease, activation, move);
}
