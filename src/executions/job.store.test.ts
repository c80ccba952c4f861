import assert from "node:assert/strict";
import { after, test } from "node:test";
import { openAttempts } from "../../test/support/attempts.ts";
import { jobLimits } from "../wire/job.ts";
import { submissionProblems } from "../wire/submission.ts";

const bench = await openAttempts({ after }, { slots: 20 });

test("E1: every spec within the API's bounds can be submitted, planned and run, whatever it is made of", async () => {
  const numbered = <T>(count: number, value: (n: number) => T) =>
    Object.fromEntries(Array.from({ length: count }, (_, n) => [`N${n.toString(36)}`, value(n)]));
  const phases = Array.from({ length: jobLimits.phasesMax }, (_, n) => n);
  for (const [what, of] of [
    ["secrets", () => ({ secrets: numbered(jobLimits.environmentMax, () => ({ name: "a", key: "b" })) })],
    ["variables", () => ({ env: numbered(jobLimits.environmentMax, () => "v".repeat(30)) })],
    ["words", () => ({ command: Array.from({ length: jobLimits.commandWordsMax }, () => "w".repeat(18)) })],
  ] as const) {
    const spec = {
      phases: phases.map((n) => ({ name: `p${n}`, kind: "compile" as const, command: ["true"], ...of() })),
    };
    const bytes = Buffer.byteLength(JSON.stringify(spec));
    assert.ok(bytes > jobLimits.specBytesMax * 0.6 && bytes <= jobLimits.specBytesMax, `${what}: ${bytes}`);
    const metadata = { name: "large" };
    assert.deepEqual(submissionProblems({ apiVersion: "holdfast/v1", kind: "Job", metadata, spec }), []);
    const { lease } = await bench.begin(spec);
    await bench.released(lease);
  }
});
