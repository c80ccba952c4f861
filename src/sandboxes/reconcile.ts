import { setTimeout as delay } from "node:timers/promises";
import { isHoldfastError } from "../core/errors.ts";
import { monotonicMs } from "../core/monotonic.ts";
import {
  type Observation,
  RuntimeRefusal,
  type SandboxOutcome,
  type SandboxRef,
} from "../core/runtime.port.ts";
import { type Instant, microseconds, toMilliseconds } from "../core/time.ts";
import { type NamedSandbox, readSpec, runtimeOf, type SandboxAttendance } from "./context.ts";
import type { Sandbox } from "./sandbox.ts";
import type { SandboxStep } from "./step.ts";

/** How long to wait for a hint before looking again. */
const lookAgainMs = 30_000;
const proveAgainMs = 2_000;
/** What a store can't give after that many tries is lost, and recorded as such. */
const drainTriesMax = 5;

/** The look that a step was decided from. */
export interface SandboxLook {
  readonly now: Instant;
  /** When the look began, on this machine's monotonic clock: how old `now` is by the time it is acted on. */
  readonly seenAtMs: number;
  /** When the sandbox is asked to stop, whatever it does. */
  readonly lastCall: Instant;
}

/** Do one step of the protocol: the outside first, then the record under the fence. */
export async function performSandboxStep(
  attendance: SandboxAttendance,
  look: SandboxLook,
  step: SandboxStep,
): Promise<void> {
  const { records } = attendance;
  switch (step.do) {
    case "hold":
      return hold(attendance, look, step.sandbox);
    case "release":
      await records.released(step.sandbox);
      return release(attendance, look, named(step.sandbox));
    case "watch":
      return watch(attendance, look, named(step.sandbox));
    case "stop":
      return records.stopping(step.sandbox, step.reason);
    case "prove":
      return prove(attendance, named(step.sandbox));
    case "abandon":
      return records.stopped(
        step.sandbox,
        neverStarted(notCreated(attendance.obstacles.get(step.sandbox.id))),
        "its UID was never recorded, so it was never released",
      );
    case "drain":
      return drain(attendance, named(step.sandbox));
    default:
      return step satisfies never;
  }
}

function named(sandbox: Sandbox): NamedSandbox {
  if (sandbox.uid === null) throw new Error(`${sandbox.name} has no UID yet`);
  return { ...sandbox, uid: sandbox.uid };
}

const refOf = (sandbox: NamedSandbox): SandboxRef => ({ name: sandbox.name, uid: sandbox.uid });

const notCreated = (obstacle: string | undefined): string =>
  obstacle === undefined
    ? "It was planned and never recorded outside."
    : `It could not be created: ${obstacle}`;

function neverStarted(message: string): SandboxOutcome {
  return { kind: "never_started", exitCode: null, signal: null, message, startedAt: null, finishedAt: null };
}

/** Create it held, or find what was created before, and commit its UID. Nothing in it runs yet. */
async function hold(
  { context, lease, signal, fenced, obstacles, records }: SandboxAttendance,
  look: SandboxLook,
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
        holdLimit: microseconds(sandbox.deadline - look.now),
      },
      signal,
    );
    fenced.add(sandbox.id);
    await records.held(sandbox, uid);
  } catch (error) {
    if (error instanceof Error && !isHoldfastError(error)) obstacles.set(sandbox.id, error.message);
    if (!(error instanceof RuntimeRefusal) || error.reason === "superseded") throw error;
    // It can't be created, now or later. Nobody recorded it, so nothing of it ever ran.
    const outcome = { ...neverStarted(error.message), kind: "start_failed" } as const;
    await records.stopped(sandbox, outcome, "it could not be created");
  }
}

async function release(
  attendance: SandboxAttendance,
  look: SandboxLook,
  sandbox: NamedSandbox,
): Promise<void> {
  const { context, lease, signal } = attendance;
  await fence(attendance, sandbox);
  try {
    // Its own clock asks it to stop at the same moment as we would, whether anybody watches or not.
    const age = BigInt(Math.ceil((monotonicMs() - look.seenAtMs) * 1000));
    const left = look.lastCall - look.now - age;
    const limit = microseconds(left > 0n ? left : 1n);
    await runtimeOf(context, sandbox).release(refOf(sandbox), lease.epoch, limit, signal);
  } catch (error) {
    // Gone or stopping: the next look tells how it ended.
    if (!(error instanceof RuntimeRefusal) || error.reason === "superseded") throw error;
  }
}

/** A takeover raises the object's epoch first, so that its predecessor can release nothing from then on. */
async function fence(
  { context, lease, signal, fenced }: SandboxAttendance,
  sandbox: NamedSandbox,
): Promise<void> {
  if (fenced.has(sandbox.id)) return;
  try {
    await runtimeOf(context, sandbox).fence(refOf(sandbox), lease.epoch, signal);
  } catch (error) {
    if (!(error instanceof RuntimeRefusal) || error.reason === "superseded") throw error;
  }
  fenced.add(sandbox.id);
}

async function watch(attendance: SandboxAttendance, look: SandboxLook, sandbox: NamedSandbox): Promise<void> {
  const { context, signal, records } = attendance;
  const runtime = runtimeOf(context, sandbox);
  await fence(attendance, sandbox);
  const observation = await runtime.observe(refOf(sandbox), signal);
  await answered(attendance, sandbox, observation);
  switch (observation.state) {
    case "held":
      // Its controller died between the commit and the release.
      return release(attendance, look, sandbox);
    case "running":
    case "stopping": {
      attendance.logs.follow(sandbox);
      const ms = Math.min(toMilliseconds(look.lastCall - look.now), lookAgainMs);
      return attendance.pause(ms, (until) => runtime.changed(refOf(sandbox), until));
    }
    case "stopped":
      return records.stopped(sandbox, observation.outcome, observation.proof);
    case "absent":
      return unproven(attendance, sandbox, "The runtime has no such object, which proves nothing.");
    case "unproven":
      return unproven(attendance, sandbox, observation.reason);
    default:
      return observation satisfies never;
  }
}

/** Ask it to end, and look until that is proven. Asking again changes nothing. */
async function prove(attendance: SandboxAttendance, sandbox: NamedSandbox): Promise<void> {
  const { context, lease, signal, records } = attendance;
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
  await answered(attendance, sandbox, observation);
  switch (observation.state) {
    case "stopped":
      return records.stopped(sandbox, observation.outcome, observation.proof);
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

/** What it holds stays taken until its stop is proven, or an operator overrides it. */
async function unproven(attendance: SandboxAttendance, sandbox: NamedSandbox, reason: string): Promise<void> {
  await attendance.records.unproven(sandbox, reason);
  await attendance.pause(proveAgainMs);
}

/** What was in question is no more once the world says that it has not stopped. A stop that is proven ends it too. */
async function answered(
  { records }: SandboxAttendance,
  sandbox: NamedSandbox,
  { state }: Observation,
): Promise<void> {
  const alive = state === "held" || state === "running" || state === "stopping";
  if (alive && sandbox.unprovenSince !== null) await records.answered(sandbox);
}

async function drain({ logs, records, signal }: SandboxAttendance, sandbox: NamedSandbox): Promise<void> {
  // The follower's last words are stored under its own idea of the position: let it end, and look again.
  await logs.settle(sandbox);
  for (let tries = 1; ; tries += 1) {
    try {
      await logs.drain({ ...sandbox, log: await records.readLog(sandbox.id) });
      return await records.logEnded(sandbox.id, null);
    } catch (error) {
      if (signal.aborted || isHoldfastError(error)) throw error;
      const gone = error instanceof RuntimeRefusal;
      if (gone || tries === drainTriesMax) {
        return records.logEnded(sandbox.id, `The rest of the output can't be read: ${String(error)}`);
      }
      // Not a pause that a change ends: the tries are spread over seconds on purpose.
      await delay(200 * 2 ** tries, undefined, { signal });
    }
  }
}

/** Delete the outside objects of an owner that has ended, by UID. Each deletion of something gone is success (E14). */
export async function removeSandboxes(
  { context, lease, signal, records }: Pick<SandboxAttendance, "context" | "lease" | "signal" | "records">,
  sandboxes: readonly Sandbox[],
): Promise<void> {
  for (const sandbox of sandboxes) {
    if (sandbox.state !== "stopped") continue;
    const runtime = runtimeOf(context, sandbox);
    // Without a recorded UID there may still be a held object under the name, made by whoever died or lost its lease.
    const uid = sandbox.uid ?? (await runtime.find(sandbox.name, signal));
    if (uid !== null) {
      const ref = { name: sandbox.name, uid };
      // Nobody has asked it to stop: it is unknown, or an operator's word stands for its proof.
      const unasked = sandbox.uid === null || sandbox.unprovenSince !== null;
      if (unasked) await runtime.stop(ref, lease.epoch, signal).catch(passGone);
      await runtime.remove(ref, signal);
    }
    await records.removed(sandbox);
  }
}

function passGone(error: unknown): void {
  if (error instanceof RuntimeRefusal && (error.reason === "gone" || error.reason === "wrong_uid")) return;
  throw error;
}
