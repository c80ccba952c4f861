import { HoldfastError } from "../core/errors.ts";
import { checkSubmission } from "../wire/submission.ts";
import type { JobFailure } from "./job.store.ts";
import { type Plan, planOf } from "./plan.ts";

/** What the direct claimant will run, one container after the other. Each phase has an image. */
export interface DirectPlan {
  readonly deadlineUs: bigint;
  readonly phases: readonly DirectPhase[];
}

export interface DirectPhase {
  readonly name: string;
  readonly image: string;
  readonly command: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly graceSeconds: number;
  readonly cpuMillicores: number;
  readonly memoryBytes: number;
}

/**
 * Pure. A historical spec may be older than every rule, so it is checked as a submission is today, and what the
 * direct claimant has no means for is refused, not left out: `invalid_request`.
 */
export function directPlanOf(spec: unknown): DirectPlan {
  const submission = { apiVersion: "holdfast/v1", kind: "Job", metadata: { name: "historical" }, spec };
  const plan = planOf(checkSubmission(submission).spec, "direct");
  if (Object.keys(plan.sources).length > 0) {
    throw refused("sources are fetched and pinned by executions only");
  }
  return { deadlineUs: BigInt(plan.deadline_us), phases: plan.phases.map(directPhase) };
}

function directPhase(phase: Plan["phases"][number]): DirectPhase {
  const { name, image, limits } = phase;
  if (image === null) throw refused(`phase ${name} names no image`);
  // It would be read as an option of the command line that it becomes a word of.
  if (image.startsWith("-")) throw refused(`phase ${name} has an image whose name begins with a hyphen`);
  if (Object.keys(phase.secrets).length > 0) {
    throw refused(`phase ${name} asks for secrets, which only executions have`);
  }
  return {
    name,
    image,
    command: phase.command,
    env: phase.env,
    graceSeconds: Number((BigInt(phase.grace_us) + 999_999n) / 1_000_000n),
    cpuMillicores: limits.cpu_millicores,
    memoryBytes: limits.memory_bytes,
  };
}

const refused = (reason: string) => new HoldfastError("invalid_request", reason);

/** Why a job ends although nothing of it ran. */
export function refusalOf(error: HoldfastError): JobFailure {
  const [first] = error.fields;
  const where = first === undefined ? "" : ` ${first.pointer} ${first.message}`;
  return {
    code: "plan_refused",
    message: `The direct claimant can't run it: ${error.detail}${where}`.slice(0, 1000),
  };
}
