import { type AgentSpec, agentLimits } from "./agent.ts";
import { inboxName } from "./delivery.ts";
import { readDuration, writeDuration } from "./duration.ts";
import { type Problem, step } from "./schema-problems.ts";

/** What the schema can't say of an agent's template: all of it at once, with pointers below `/spec`. */
export function agentRuleProblems(spec: AgentSpec): Problem[] {
  return [...timeProblems(spec), ...destinationProblems(spec), ...sizeProblems(spec)];
}

function timeProblems({ timeout = agentLimits.timeoutDefault, grace }: AgentSpec): Problem[] {
  const longest = agentLimits.timeoutMicrosecondsMax;
  const time = readDuration(timeout);
  if (time === undefined || time <= 0n || time > longest) {
    const message = `must be more than 0s and at most ${writeDuration(longest)}, found ${timeout}`;
    return [{ pointer: "/spec/timeout", message, at: "value" }];
  }
  if (grace === undefined) return [];
  const stop = readDuration(grace);
  if (stop !== undefined && stop < time) return [];
  const message = `must be shorter than the timeout of ${timeout}, found ${grace}`;
  return [{ pointer: "/spec/grace", message, at: "value" }];
}

function destinationProblems({ destinations = [] }: AgentSpec): Problem[] {
  const names = new Map<string, number>();
  return destinations.flatMap(({ name }, index): Problem[] => {
    const pointer = step(step("/spec/destinations", index), "name");
    const first = names.get(name);
    names.set(name, first ?? index);
    if (name === inboxName)
      return [{ pointer, message: `\`${inboxName}\` is the built-in one`, at: "value" }];
    if (first === undefined) return [];
    return [{ pointer, message: `destination ${first + 1} has the name \`${name}\` already`, at: "value" }];
  });
}

function sizeProblems(spec: AgentSpec): Problem[] {
  const bytes = new TextEncoder().encode(JSON.stringify(spec)).byteLength;
  if (bytes <= agentLimits.specBytesMax) return [];
  const message = `takes ${bytes} bytes of JSON, and at most ${agentLimits.specBytesMax} are kept`;
  return [{ pointer: "/spec", message, at: "name" }];
}
