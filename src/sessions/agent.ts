import { HoldfastError } from "../core/errors.ts";
import { refuseFaults } from "../core/labels.ts";
import type { SandboxSpec } from "../core/runtime.port.ts";
import { type Microseconds, parseDuration } from "../core/time.ts";
import { sandboxDefaults } from "../sandboxes/sandbox.ts";
import { type AgentSpec, agentLimits } from "../wire/agent.ts";

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

/** The outbox's own destination, which clients read. No other may have its name. */
export const inbox = "inbox";

/** Pure: the same template gives the same plan. */
export function runPlanOf(spec: AgentSpec): RunPlan {
  const timeout = durationOf(spec.timeout ?? agentLimits.timeoutDefault, "/spec/timeout");
  if (timeout <= 0n || timeout > agentLimits.timeoutMicrosecondsMax) {
    throw invalid("/spec/timeout", "a timeout is more than nothing and at most three hours");
  }
  // The default leaves most of a short timeout to the work: a stop begins its grace before the deadline.
  const usual = durationOf(sandboxDefaults.grace, "/spec/grace");
  const quarter = (timeout / 4n) as Microseconds; // a quarter of whole microseconds
  const grace =
    spec.grace === undefined ? (usual < quarter ? usual : quarter) : durationOf(spec.grace, "/spec/grace");
  if (grace >= timeout) throw invalid("/spec/grace", "the grace ends before the timeout does");
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

/** What the schema does not bound: sizes, durations, and names that may be there once. */
export function checkAgentSpec(spec: AgentSpec): void {
  const { destinations } = runPlanOf(spec);
  const bytes = Buffer.byteLength(JSON.stringify(spec));
  const twice = destinations.find((name, index) => destinations.indexOf(name) !== index);
  refuseFaults([
    ...(bytes > agentLimits.specBytesMax
      ? [
          {
            pointer: "/spec",
            message: `the spec takes ${bytes} bytes of JSON, at most ${agentLimits.specBytesMax} are kept`,
          },
        ]
      : []),
    ...(twice === undefined
      ? []
      : [{ pointer: "/spec/destinations", message: `two destinations are called ${twice}` }]),
    ...(destinations.includes(inbox)
      ? [{ pointer: "/spec/destinations", message: `${inbox} is the name of the built-in one` }]
      : []),
  ]);
}

function durationOf(text: string, pointer: string): Microseconds {
  const duration = parseDuration(text);
  if (duration === undefined) throw invalid(pointer, "write a duration such as 90s, 10m or 1h30m");
  return duration;
}

function invalid(pointer: string, message: string): HoldfastError {
  return new HoldfastError("invalid_request", message, { fields: [{ pointer, message }] });
}
