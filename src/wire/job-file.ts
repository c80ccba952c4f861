import { LineCounter } from "yaml";
import { HoldfastError } from "./holdfast-error.ts";
import { type JobSubmission, jobLimits } from "./job.ts";
import { fileText } from "./job-file-text.ts";
import { placeOf, readDocument } from "./job-file-yaml.ts";
import type { Problem } from "./schema-problems.ts";
import { invalidSubmission, submissionProblems } from "./submission.ts";

/**
 * Read a job file: one YAML 1.2 document, of which JSON is a part. Throws `invalid_request` with `fields`
 * that carry line and column. `name` is for the message only.
 */
export function parseJobFile(
  content: string | Uint8Array,
  name: string,
): { readonly submission: JobSubmission } {
  return { submission: parseFile(content, name, submissionProblems) as JobSubmission }; // it has no problem
}

/** The same for a file of another kind: `problemsOf` says all that is wrong with what is in it. */
export function parseFile(
  content: string | Uint8Array,
  name: string,
  problemsOf: (value: unknown) => Problem[],
): unknown {
  const bytes = typeof content === "string" ? content.length : content.byteLength;
  if (bytes > jobLimits.fileBytesMax) {
    const message = `the file has at most ${jobLimits.fileBytesMax} bytes`;
    throw new HoldfastError("invalid_request", `${name} is too large.`, {
      fields: [{ pointer: "", message, line: 1, column: 1 }],
    });
  }
  const read = fileText(content);
  if (!read.ok) {
    throw new HoldfastError("invalid_request", `${name} is not a text file.`, { fields: [read.problem] });
  }
  const lines = new LineCounter();
  const document = readDocument(read.text, lines);
  if (!document.ok) {
    throw new HoldfastError("invalid_request", `${name} can't be read.`, { fields: document.problems });
  }
  const problems = problemsOf(document.value);
  if (problems.length === 0) return document.value;
  // Thousands of mistakes are one mistake; their places are not worth looking up.
  const placed = problems.slice(0, 100).map((problem) => ({
    ...problem,
    ...placeOf(document.document, lines, problem.pointer, problem.at),
  }));
  throw invalidSubmission(
    placed.sort((a, b) => a.line - b.line || a.column - b.column),
    name,
    problems.length,
  );
}
