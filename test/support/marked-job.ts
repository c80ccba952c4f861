import type { JobSubmission, PhaseSpec } from "../../src/wire/job.ts";
import type { Arena } from "./arena.ts";

export interface MarkedPhase {
  readonly name?: string;
  readonly kind?: PhaseSpec["kind"];
  /** Shell, after the mark. `helper` is the phase helper. */
  readonly run?: string;
}

/** A job whose phases each first leave a mark outside, so that real starts can be counted. */
export function markedJob(
  { markFile }: Pick<Arena, "markFile">,
  name: string,
  phases: readonly MarkedPhase[],
  spec: Partial<Omit<JobSubmission["spec"], "phases">> = {},
): JobSubmission {
  const mark = 'echo "$HOLDFAST_JOB $HOLDFAST_ATTEMPT $HOLDFAST_PHASE" >> "$MARKS"';
  const helper = 'helper() { "$HOLDFAST_NODE" "$HOLDFAST_PHASE_HELPER" "$@"; }';
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
        command: ["/bin/sh", "-ec", [helper, mark, phase.run ?? "echo done"].join("\n")],
        env: { MARKS: markFile },
        grace: "1s",
      })),
    },
  };
}

const commit = "0123456789abcdef0123456789abcdef01234567";

/** Sources with a pin, an object for the next phase, one that nobody needs, and the artifact. */
export const publishingPhases: readonly MarkedPhase[] = [
  { name: "source", kind: "source", run: `helper pin module=${commit}` },
  {
    name: "publish",
    kind: "publish",
    run: [
      "mkdir site; echo hello > site/index.html",
      "helper pack site site.tar.gz --manifest manifest.json",
      "helper upload partial.txt manifest.json",
      "helper upload site.tar.gz site.tar.gz",
      "helper artifact site.tar.gz --manifest manifest.json",
    ].join("\n"),
  },
];

export const publishingSpec = {
  sources: { module: { repository: "/nowhere/module.git", ref: "main" } },
} as const;
