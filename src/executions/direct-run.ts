import { isHoldfastError } from "../core/errors.ts";
import { type Instant, instant } from "../core/time.ts";
import { type Claimant, type DirectClaim, recordContainer, settleDirectJob } from "./direct-claim.store.ts";
import { type Container, ContainerRefused, type Containers } from "./direct-container.ts";
import { type DirectPhase, type DirectPlan, directPlanOf, refusalOf } from "./direct-plan.ts";
import type { DirectWatch } from "./direct-watch.ts";
import type { JobFailure } from "./job.store.ts";

/**
 * Takes a claimed job from wherever it is to its end, and settles it. Each container is created, recorded and only
 * then started, and the one before it is removed after that. So the recorded container tells how far the job is:
 * still *created*, it never ran; *running* or *exited*, it is the one; not there any more, nobody knows, and the job
 * fails instead of running twice (E13). Throws when that can't be told now; then it is taken up again.
 */
export async function runDirectJob(
  claimant: Claimant,
  claim: DirectClaim,
  { containers, watch }: { readonly containers: Containers; readonly watch: DirectWatch },
): Promise<void> {
  const { job } = claim;
  const settle = (failure: JobFailure | null) => settleDirectJob(claimant, job, failure);

  watch.check();
  const found = await containers.list(job);
  const recorded = found.find(({ id }) => id === claim.container);
  if (claim.container !== null && recorded === undefined) return settle(lost);
  for (const { id } of found.filter((container) => container !== recorded)) {
    watch.check();
    await containers.remove(id);
  }

  let plan: DirectPlan;
  try {
    plan = directPlanOf(claim.spec);
  } catch (error) {
    if (!isHoldfastError(error, "invalid_request")) throw error;
    // Only another release could have started it.
    if (recorded?.state === "running") await containers.stop(recorded.id, 0);
    return settle(refusalOf(error));
  }
  const deadline = recorded?.deadline ?? instant(claim.now + plan.deadlineUs);
  watch.endAt(deadline);

  let last = recorded ?? null;
  for (const [number, phase] of plan.phases.entries()) {
    if (last !== null && last.phase > number) continue;
    if (last === null || last.phase < number || last.state === "created") {
      const next = await begin({ number, phase, deadline, last });
      if ("code" in next) return settle(next);
      last = next;
    }
    const failure = await outcomeOf(last, phase);
    if (failure !== null) return settle(failure);
  }
  return settle(null);

  async function begin(step: {
    readonly number: number;
    readonly phase: DirectPhase;
    readonly deadline: Instant;
    readonly last: Container | null;
  }): Promise<Container | JobFailure> {
    const { number, phase, last: before } = step;
    watch.check();
    if (watch.end !== null) return endedBy(watch.end, phase);
    // Never started, and it can't be any more: a claimant that was suspended before starting it finds nothing.
    if (before?.state === "created") await containers.remove(before.id);
    const id = await unlessRefused(phase, () =>
      containers.create(job, number, phase, step.deadline, watch.over).catch((error: unknown) => {
        if (watch.end === null || watch.gone.aborted) throw error;
        return endedBy(watch.end, phase);
      }),
    );
    if (typeof id !== "string") return id;
    watch.check();
    if (await recordContainer(claimant, job, id)) watch.endNow("cancelled");
    if (before !== null && before.state !== "created") await containers.remove(before.id);
    if (watch.end !== null) return endedBy(watch.end, phase);
    watch.check();
    const refused = await unlessRefused(phase, () => containers.start(id));
    return refused ?? { id, state: "running", job, phase: number, deadline: step.deadline };
  }

  /** What the command refuses while it answers otherwise is the job's own fault, and won't get better. */
  async function unlessRefused<T>(phase: DirectPhase, body: () => Promise<T>): Promise<T | JobFailure> {
    try {
      return await body();
    } catch (error) {
      if (!(error instanceof ContainerRefused)) throw error;
      await containers.check();
      const message = `Phase ${phase.name} could not be started: ${error.message}`;
      return { code: "start_failed", message: message.slice(0, 1000) };
    }
  }

  async function outcomeOf(container: Container, phase: DirectPhase): Promise<JobFailure | null> {
    // What has ended by itself counts as it ended, however late that is seen.
    const until = container.state === "exited" ? watch.gone : watch.over;
    const code = await containers.wait(container.id, until).catch(async (error: unknown) => {
      if (watch.end === null || watch.gone.aborted) throw error;
      watch.check();
      await containers.stop(container.id, phase.graceSeconds);
      await containers.wait(container.id, watch.gone);
      return null;
    });
    if (code === 0) return null;
    if (code !== null)
      return { code: "phase_failed", message: `Phase ${phase.name} ended with exit code ${code}.` };
    return endedBy(watch.end ?? "cancelled", phase);
  }
}

const lost: JobFailure = {
  code: "container_lost",
  message: "Its container is not on this host any more, so how it ended is not known.",
};

function endedBy(end: "cancelled" | "deadline", phase: DirectPhase): JobFailure {
  return end === "deadline"
    ? { code: "deadline_exceeded", message: `Phase ${phase.name} was not over at the deadline.` }
    : { code: "cancelled", message: `Phase ${phase.name} was stopped because the job was cancelled.` };
}
