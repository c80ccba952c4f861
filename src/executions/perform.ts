import { view as look } from "../core/postgres/transition.ts";
import { performSandboxStep } from "../sandboxes/reconcile.ts";
import { archiveLog, trimLog } from "./archive-log.ts";
import { finishExecution } from "./attempt.store.ts";
import { type AttemptSnapshot, type Failure, lastCall, type Step } from "./attempt.ts";
import { clean } from "./clean.ts";
import type { Attendance } from "./context.ts";
import { readDeclaredArtifact } from "./object.sql.ts";
import { advancePhase } from "./phase.store.ts";

/** Do one step: the outside first, then the record under the fence. */
export async function perform(attendance: Attendance, view: AttemptSnapshot, step: Step): Promise<void> {
  const { context, lease } = attendance;
  switch (step.do) {
    case "hold":
    case "release":
    case "watch":
    case "stop":
    case "prove":
    case "abandon":
    case "drain":
      return performSandboxStep(attendance, { ...view, lastCall: lastCall(view, step.sandbox.step) }, step);
    case "advance":
      return advancePhase(context.db, lease, view, step, context.installation);
    case "finish":
      return finish(attendance, view, step);
    case "archive":
      return archiveLog(attendance, view);
    case "trim":
      return trimLog(attendance, view);
    case "clean":
      return clean(attendance, view);
    case "nothing":
      return;
    default:
      return step satisfies never;
  }
}

/** Publication is checked against the store before the fact is committed (E20). */
async function finish(
  { context, lease, signal }: Attendance,
  view: AttemptSnapshot,
  step: Extract<Step, { do: "finish" }>,
): Promise<void> {
  let { outcome, failure }: { outcome: typeof step.outcome; failure: Failure | null } = step;
  if (outcome === "succeeded" && view.artifactDeclared) {
    const scope = { role: "controller", tenant: lease.tenant, name: "readArtifact" } as const;
    const artifact = await look(context.db, scope, (tx) =>
      tx.run(readDeclaredArtifact, { attempt: lease.resource }),
    );
    if (artifact === undefined || !(await context.blobs.verify(artifact.blob_key, artifact, signal))) {
      outcome = "failed";
      failure = {
        code: "artifact_invalid",
        message: "The store does not have the declared artifact with its length and digest.",
      };
    }
  }
  await finishExecution(context.db, lease, {
    outcome,
    failure,
    retentionUs: context.settings.retention,
    attemptsMax: view.plan.attempts,
    queueMax: context.settings.queueMax,
  });
}
