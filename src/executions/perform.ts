import { setTimeout as delay } from "node:timers/promises";
import { isHoldfastError } from "../core/errors.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { view as look } from "../core/postgres/transition.ts";
import { RuntimeRefusal, type SandboxOutcome, type SandboxRef } from "../core/runtime.port.ts";
import { microseconds, toMilliseconds } from "../core/time.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { archiveLog, trimLog } from "./archive-log.ts";
import { finishExecution } from "./attempt.store.ts";
import { type AttemptSnapshot, type Failure, lastCall, type Step } from "./attempt.ts";
import { clean } from "./clean.ts";
import { type Attendance, readSpec, runtimeOf } from "./context.ts";
import { readDeclaredArtifact } from "./object.sql.ts";
import {
  advancePhase,
  readSandboxLog,
  recordLogEnd,
  recordRelease,
  recordResource,
  recordStopped,
  recordStopping,
  recordUnproven,
} from "./phase.store.ts";

/** How long to wait for a hint before looking again. */
const lookAgainMs = 30_000;
const proveAgainMs = 2_000;
/** What a store can't give after that many tries is lost, and recorded as such. */
const drainTriesMax = 5;

type Named = Sandbox & { readonly uid: string };

/** Do one step: the outside first, then the record under the fence. */
export async function perform(attendance: Attendance, view: AttemptSnapshot, step: Step): Promise<void> {
  const { context, lease } = attendance;
  switch (step.do) {
    case "hold":
      return hold(attendance, view, step.sandbox);
    case "release":
      await recordRelease(context.db, lease, step.sandbox);
      return release(attendance, view, named(step.sandbox));
    case "watch":
      return watch(attendance, view, named(step.sandbox));
    case "stop":
      return recordStopping(context.db, lease, step.sandbox, step.reason);
    case "prove":
      return prove(attendance, named(step.sandbox));
    case "abandon":
      return recordStopped(
        context.db,
        lease,
        step.sandbox,
        neverStarted("It was planned and never recorded outside."),
        "its UID was never recorded, so it was never released",
      );
    case "drain":
      return drain(attendance, named(step.sandbox));
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

function named(sandbox: Sandbox): Named {
  if (sandbox.uid === null) throw new Error(`${sandbox.name} has no UID yet`);
  return { ...sandbox, uid: sandbox.uid };
}

const refOf = (sandbox: Named): SandboxRef => ({ name: sandbox.name, uid: sandbox.uid });

function neverStarted(message: string): SandboxOutcome {
  return { kind: "never_started", exitCode: null, signal: null, message, startedAt: null, finishedAt: null };
}

/** Create it held, or find what was created before, and commit its UID. Nothing in it runs yet. */
async function hold(
  { context, lease, signal, fenced }: Attendance,
  view: AttemptSnapshot,
  sandbox: Sandbox,
): Promise<void> {
  const runtime = runtimeOf(context, sandbox);
  const { spec, digest } = await readSpec(context, lease, sandbox);
  try {
    const { uid } = await runtime.prepare(
      {
        name: sandbox.name,
        installation: context.installation,
        tenant: lease.tenant,
        sandbox: sandbox.id,
        spec,
        specDigest: digest,
        epoch: lease.epoch,
        privateEnv: {
          HOLDFAST_CALLBACK_URL: context.callback.url,
          HOLDFAST_TOKEN: context.callback.token(sandbox),
        },
        holdLimit: microseconds(view.deadline - view.now),
      },
      signal,
    );
    fenced.add(sandbox.id);
    await recordResource(context.db, lease, sandbox, uid);
  } catch (error) {
    if (!(error instanceof RuntimeRefusal) || error.reason === "superseded") throw error;
    // It can't be created, now or later. Nobody recorded it, so nothing of it ever ran.
    const outcome = { ...neverStarted(error.message), kind: "start_failed" } as const;
    await recordStopped(context.db, lease, sandbox, outcome, "it could not be created");
  }
}

async function release(attendance: Attendance, view: AttemptSnapshot, sandbox: Named): Promise<void> {
  const { context, lease, signal } = attendance;
  await fence(attendance, sandbox);
  try {
    // Its own clock asks it to stop at the same moment as we would, whether anybody watches or not.
    const age = BigInt(Math.ceil((monotonicMs() - view.seenAtMs) * 1000));
    const left = lastCall(view, sandbox.step) - view.now - age;
    const limit = microseconds(left > 0n ? left : 1n);
    await runtimeOf(context, sandbox).release(refOf(sandbox), lease.epoch, limit, signal);
  } catch (error) {
    // Gone or stopping: the next look tells how it ended.
    if (!(error instanceof RuntimeRefusal) || error.reason === "superseded") throw error;
  }
}

/** A takeover raises the object's epoch first, so that its predecessor can release nothing from then on. */
async function fence({ context, lease, signal, fenced }: Attendance, sandbox: Named): Promise<void> {
  if (fenced.has(sandbox.id)) return;
  try {
    await runtimeOf(context, sandbox).fence(refOf(sandbox), lease.epoch, signal);
  } catch (error) {
    if (!(error instanceof RuntimeRefusal) || error.reason === "superseded") throw error;
  }
  fenced.add(sandbox.id);
}

async function watch(attendance: Attendance, view: AttemptSnapshot, sandbox: Named): Promise<void> {
  const { context, signal } = attendance;
  const runtime = runtimeOf(context, sandbox);
  await fence(attendance, sandbox);
  const observation = await runtime.observe(refOf(sandbox), signal);
  switch (observation.state) {
    case "held":
      // Its controller died between the commit and the release.
      return release(attendance, view, sandbox);
    case "running":
    case "stopping": {
      attendance.logs.follow(sandbox);
      const ms = Math.min(toMilliseconds(lastCall(view, sandbox.step) - view.now), lookAgainMs);
      return attendance.pause(ms, (until) => runtime.changed(refOf(sandbox), until));
    }
    case "stopped":
      return recordStopped(context.db, attendance.lease, sandbox, observation.outcome, observation.proof);
    case "absent":
      return unproven(attendance, sandbox, "The runtime has no such object, which proves nothing.");
    case "unproven":
      return unproven(attendance, sandbox, observation.reason);
    default:
      return observation satisfies never;
  }
}

/** Ask it to end, and look until that is proven. Asking again changes nothing. */
async function prove(attendance: Attendance, sandbox: Named): Promise<void> {
  const { context, lease, signal } = attendance;
  const runtime = runtimeOf(context, sandbox);
  await fence(attendance, sandbox);
  try {
    await runtime.stop(refOf(sandbox), lease.epoch, signal);
  } catch (error) {
    if (error instanceof RuntimeRefusal && error.reason === "superseded") throw error;
    if (!(error instanceof RuntimeRefusal)) {
      await unproven(attendance, sandbox, `It could not be asked to stop: ${String(error)}`);
      return;
    }
  }
  const observation = await runtime.observe(refOf(sandbox), signal);
  switch (observation.state) {
    case "stopped":
      return recordStopped(context.db, attendance.lease, sandbox, observation.outcome, observation.proof);
    case "held":
    case "running":
    case "stopping":
      attendance.logs.follow(sandbox);
      return attendance.pause(proveAgainMs, (until) => runtime.changed(refOf(sandbox), until));
    case "absent":
      return unproven(attendance, sandbox, "The runtime has no such object, which proves nothing.");
    case "unproven":
      return unproven(attendance, sandbox, observation.reason);
    default:
      return observation satisfies never;
  }
}

/** The slot stays taken until it is proven, or an operator overrides it. */
async function unproven(attendance: Attendance, sandbox: Named, reason: string): Promise<void> {
  await recordUnproven(attendance.context.db, attendance.lease, sandbox, reason);
  await attendance.pause(proveAgainMs);
}

async function drain(attendance: Attendance, sandbox: Named): Promise<void> {
  const { context, lease, logs, signal } = attendance;
  // The follower's last words are stored under its own idea of the position: let it end, and look again.
  await logs.settle(sandbox);
  for (let tries = 1; ; tries += 1) {
    try {
      await logs.drain({ ...sandbox, log: await readSandboxLog(context.db, lease, sandbox.id) });
      return await recordLogEnd(context.db, lease, sandbox.id, null);
    } catch (error) {
      if (signal.aborted || isHoldfastError(error)) throw error;
      const gone = error instanceof RuntimeRefusal;
      if (gone || tries === drainTriesMax) {
        return recordLogEnd(
          context.db,
          lease,
          sandbox.id,
          `The rest of the output can't be read: ${String(error)}`,
        );
      }
      // Not a pause that a change of the job ends: the tries are spread over seconds on purpose.
      await delay(200 * 2 ** tries, undefined, { signal });
    }
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
