import { resolve } from "node:path";
import type { JobSubmission, PhaseSpec } from "../../src/wire/job.ts";
import type { Arena } from "./arena.ts";

const helperFile = resolve(import.meta.dirname, "../fixtures/phase-steps.ts");
const compileCache = resolve(import.meta.dirname, "../../node_modules/.cache/holdfast-tests");

export interface MarkedPhase {
  readonly name?: string;
  readonly kind?: PhaseSpec["kind"];
  /** Shell, after the mark. */
  readonly run?: string;
  /** Commands of the phase helper, after that. */
  readonly steps?: readonly (readonly string[])[];
}

/** A job whose phases each first leave a mark outside, so that real starts can be counted. */
export function markedJob(
  { markFile }: Pick<Arena, "markFile">,
  name: string,
  phases: readonly MarkedPhase[],
  spec: Partial<Omit<JobSubmission["spec"], "phases">> = {},
): JobSubmission {
  const mark = 'echo "$HOLDFAST_JOB $HOLDFAST_ATTEMPT $HOLDFAST_PHASE" >> "$MARKS"';
  const helper = '[ -z "$STEPS" ] || "$NODE" --disable-warning=ExperimentalWarning "$HELPER" "$STEPS"';
  return {
    apiVersion: "holdfast/v1",
    kind: "Job",
    metadata: { name },
    spec: {
      deadline: "5m",
      attempts: 1,
      ...spec,
      phases: phases.map((phase, index) => ({
        name: phase.name ?? `phase-${index + 1}`,
        kind: phase.kind ?? "compile",
        command: ["/bin/sh", "-ec", [mark, phase.run ?? "echo done", helper].join("\n")],
        env: {
          MARKS: markFile,
          // A pod has what its image has; the double's containers run here.
          NODE: process.execPath,
          HELPER: helperFile,
          STEPS: phase.steps === undefined ? "" : JSON.stringify(phase.steps),
          NODE_COMPILE_CACHE: compileCache,
        },
        grace: "1s",
      })),
    },
  };
}

const commit = "0123456789abcdef0123456789abcdef01234567";

/** Sources with a pin, an object for the next phase, one that nobody needs, and the artifact. */
export const publishingPhases: readonly MarkedPhase[] = [
  { name: "source", kind: "source", steps: [["pin", `module=${commit}`]] },
  {
    name: "publish",
    kind: "publish",
    run: "mkdir site; echo hello > site/index.html",
    steps: [
      ["pack", "site", "site.tar.gz", "--manifest", "manifest.json"],
      ["upload", "partial.txt", "manifest.json"],
      ["upload", "site.tar.gz", "site.tar.gz"],
      ["artifact", "site.tar.gz", "--manifest", "manifest.json"],
    ],
  },
];

export const publishingSpec = {
  sources: { module: { repository: "/nowhere/module.git", ref: "main" } },
} as const;
