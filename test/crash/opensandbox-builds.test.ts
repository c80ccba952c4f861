import { crashAtEachPoint } from "../support/crash.ts";
import type { Scenario } from "../support/crash-scenarios.ts";
import { markedJob } from "../support/marked-job.ts";
import { openOpenSandboxArena } from "../support/opensandbox/arena.ts";
import { until } from "../support/until.ts";

const around = (...transitions: string[]) =>
  transitions.flatMap((name) => [`commit ${name}`, `committed ${name}`]);
/** `claim#2` is its second time. */
const requests = (...verbs: string[]) =>
  verbs.flatMap((moment) => {
    const [verb, nth] = moment.split("#");
    const time = nth === undefined ? "" : `#${nth}`;
    return [`api ${verb} received${time}`, `api ${verb} done${time}`];
  });

const builds: readonly Scenario[] = [
  {
    name: "a build of one phase",
    // Long enough for a look that finds it running, on a busy machine too.
    job: (arena) => markedJob(arena, "one", [{ run: "echo one; sleep 2" }]),
    expected: { state: "succeeded", attempts: 1 },
    moments: [
      ...around("sandbox.held", "sandbox.released", "sandbox.stopped", "sandbox.removed"),
      ...requests("create", "claim", "release", "mark", "run", "look", "read", "delete"),
    ],
  },
  {
    name: "a build of three phases",
    job: (arena) =>
      markedJob(arena, "three", [{ run: "echo one" }, { run: "echo two" }, { run: "echo three" }]),
    expected: { state: "succeeded", attempts: 1 },
    moments: [
      "api create done",
      "api create done#2",
      "api claim done#2",
      "api run received#2",
      "api run done#3",
    ],
  },
  {
    name: "a build that is cancelled while it runs",
    job: (arena) => markedJob(arena, "cancelled", [{ run: "sleep 60" }]),
    async meanwhile(arena, job, tenant) {
      await until("its phase has started", async () => (await arena.marks(job)).length > 0, 60_000);
      await arena.cancel(job, tenant);
    },
    expected: { state: "cancelled", attempts: 1 },
    moments: requests("stop"),
  },
];

crashAtEachPoint("E5 E6 E7 E10 E19 G6: SIGKILL at each request of builds that run in OpenSandbox", builds, {
  open: openOpenSandboxArena,
  batchMax: 8,
  commitsMax: 4,
  leaseMs: 8_000,
});
