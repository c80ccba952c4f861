import { HoldfastError } from "../core/errors.ts";
import { refuseFaults } from "../core/labels.ts";
import type { SandboxSpec } from "../core/runtime.port.ts";
import { type Microseconds, parseDuration } from "../core/time.ts";
import { sandboxDefaults } from "../sandboxes/sandbox.ts";
import { type AgentSpec, agentLimits } from "../wire/agent.ts";
import { agentRuleProblems } from "../wire/agent-rules.ts";

/** What one version of an agent's template means for a run, with every default written out. */
export interface RunPlan {
  readonly timeout: Microseconds;
  readonly grace: Microseconds;
  /** How often an activation runs from the unchanged head before it has failed. */
  readonly tries: number;
  /** Names of where replies go; none: the built-in inbox. */
  readonly destinations: readonly string[];
  readonly sandbox: Omit<SandboxSpec, "env"> & { readonly env: Readonly<Record<string, string>> };
}

/** Pure: the same template gives the same plan. */
export function runPlanOf(spec: AgentSpec): RunPlan {
  const timeout = durationOf(spec.timeout ?? agentLimits.timeoutDefault);
  // The default leaves most of a short timeout to the work: a stop begins its grace before the deadline.
  const usual = durationOf(sandboxDefaults.grace);
  const quarter = (timeout / 4n) as Microseconds; // a quarter of whole microseconds
  const grace = spec.grace === undefined ? (usual < quarter ? usual : quarter) : durationOf(spec.grace);
  return {
    timeout,
    grace,
    tries: spec.tries ?? agentLimits.triesDefault,
    destinations: (spec.destinations ?? []).map(({ name }) => name),
    sandbox: {
      command: spec.command,
      env: spec.env ?? {},
      secrets: spec.secrets ?? {},
      image: spec.image ?? null,
      grace,
      limits: {
        cpuMillicores: spec.limits?.cpu_millicores ?? sandboxDefaults.cpuMillicores,
        memoryBytes: spec.limits?.memory_bytes ?? sandboxDefaults.memoryBytes,
        diskBytes: spec.limits?.disk_bytes ?? sandboxDefaults.diskBytes,
      },
    },
  };
}

/** `invalid_request` with all that the schema can't say. */
export function checkAgentSpec(spec: AgentSpec): void {
  refuseFaults(agentRuleProblems(spec).map(({ pointer, message }) => ({ pointer, message })));
}

/** Of a template that `checkAgentSpec` has accepted. */
function durationOf(text: string): Microseconds {
  const duration = parseDuration(text);
  if (duration === undefined)
    throw new HoldfastError("internal", `a stored template has the duration ${text}`);
  return duration;
}
