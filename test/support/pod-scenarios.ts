import { otherBuilds, plainBuild, type Scenario } from "./crash-scenarios.ts";
import { markedJob } from "./marked-job.ts";

/** `get#2` is its second time. */
const requests = (...verbs: string[]) =>
  verbs.flatMap((moment) => {
    const [verb, nth] = moment.split("#");
    const time = nth === undefined ? "" : `#${nth}`;
    return [`api ${verb} received${time}`, `api ${verb} done${time}`];
  });

/** What the same builds do when they run as pods, by the scenario's name. */
const more: Readonly<Record<string, Partial<Pick<Scenario, "moments" | "alone">>>> = {
  "a build of one phase": {
    moments: requests("create", "get", "get#2", "release", "log", "delete", "finalize"),
    // A read by whoever is killed at it tells nobody anything, whether it was answered or not.
    alone: ["api list received", "api watch done"],
  },
  "a build that is cancelled while it runs": { moments: requests("stop") },
  "a takeover": { moments: [], alone: requests("fence") },
};

/**
 * The requests stand for the runtime's own calls. What happens before anything is outside, and what a sandbox
 * reports, is the same wherever it runs.
 */
const elsewhere =
  /^((call|returned) |commit(ted)? (claim|startExecution|recordSourcePins|promiseObject|completeObject|markObjectRemoved))/;
const differs = (moment: string) => !elsewhere.test(moment);

/** A pod without a node is not stopped but deleted. */
const cancelledWhileHeld: Scenario = {
  name: "a build that is cancelled while it is held",
  before: "committed sandbox.held",
  job: (arena) => markedJob(arena, "held", [{}]),
  async meanwhile(arena, job, tenant) {
    await arena.cancel(job, tenant);
  },
  expected: { state: "cancelled", attempts: 1 },
  moments: [],
  alone: requests("delete"),
};

export const podBuilds: readonly Scenario[] = [
  ...[...plainBuild, ...otherBuilds].map((scenario): Scenario => {
    const { moments = [], alone = [] } = more[scenario.name] ?? {};
    return {
      ...scenario,
      moments: [...scenario.moments.filter(differs), ...moments],
      alone: [...(scenario.alone ?? []).filter(differs), ...alone],
    };
  }),
  cancelledWhileHeld,
];
