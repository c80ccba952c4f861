import { Compile } from "typebox/compile";
import { readDuration, writeDuration } from "./duration.ts";
import { type FieldError, HoldfastError } from "./holdfast-error.ts";
import { JobSubmission, jobLimits } from "./job.ts";
import { type Problem, schemaProblems, step } from "./schema-problems.ts";

const validator = Compile(JobSubmission);
const problemsShownMax = 20;

/**
 * A job file's content, or the body of `POST /v1/jobs`, if it is one. Otherwise `invalid_request` with a
 * message for each place that is wrong.
 */
export function checkSubmission(value: unknown): JobSubmission {
  const problems = submissionProblems(value);
  if (problems.length > 0) throw invalidSubmission(problems);
  return value as JobSubmission; // The validator has just said so.
}

export function invalidSubmission(
  problems: readonly (Problem & { readonly line?: number; readonly column?: number })[],
  name = "The job",
  total = problems.length,
): HoldfastError {
  const shown = problems.slice(0, problemsShownMax);
  const more = total > shown.length ? `; the first ${shown.length} are listed` : "";
  const count = total === 1 ? "one problem" : `${total} problems`;
  return new HoldfastError("invalid_request", `${name} has ${count}${more}.`, {
    fields: shown.map(publicField),
  });
}

function publicField(problem: Problem & { readonly line?: number; readonly column?: number }): FieldError {
  const { pointer, message, line, column } = problem;
  return line === undefined || column === undefined
    ? { pointer, message }
    : { pointer, message, line, column };
}

/** Everything that is wrong: the schema first, and when the shape is right, the rules that it can't express. */
export function submissionProblems(value: unknown): Problem[] {
  if (validator.Check(value)) return [...textProblems(value, ""), ...ruleProblems(value)];
  const problems = schemaProblems(JobSubmission, value);
  return problems.length > 0 ? problems : [{ pointer: "", message: "is not a valid job", at: "value" }];
}

function ruleProblems(submission: JobSubmission): Problem[] {
  return [...durationProblems(submission), ...phaseProblems(submission)];
}

function durationProblems({ spec }: JobSubmission): Problem[] {
  const problems: Problem[] = [];
  const written = spec.deadline ?? jobLimits.deadlineDefault;
  const deadline = readDuration(written) ?? 0n;
  const longest = writeDuration(jobLimits.deadlineMicrosecondsMax);
  if (deadline <= 0n || deadline > jobLimits.deadlineMicrosecondsMax) {
    const message = `must be more than 0s and at most ${longest}, found ${written}`;
    problems.push({ pointer: "/spec/deadline", message, at: "value" });
    return problems;
  }
  for (const [index, phase] of spec.phases.entries()) {
    if (phase.grace === undefined) continue;
    const grace = readDuration(phase.grace) ?? 0n;
    const pointer = step(step("/spec/phases", index), "grace");
    if (grace > jobLimits.graceMicrosecondsMax) {
      const message = `must be at most ${writeDuration(jobLimits.graceMicrosecondsMax)}, found ${phase.grace}`;
      problems.push({ pointer, message, at: "value" });
    } else if (grace >= deadline) {
      const message = `must be shorter than the deadline of ${written}, found ${phase.grace}`;
      problems.push({ pointer, message, at: "value" });
    }
  }
  return problems;
}

function phaseProblems({ spec }: JobSubmission): Problem[] {
  const problems: Problem[] = [];
  const blame = (index: number, field: string, message: string) =>
    problems.push({ pointer: step(step("/spec/phases", index), field), message, at: "value" });
  const { phases } = spec;
  const names = new Map<string, number>();
  let laterKind: string | undefined;
  let publish: string | undefined;
  for (const [index, phase] of phases.entries()) {
    const first = names.get(phase.name);
    if (first === undefined) names.set(phase.name, index);
    else blame(index, "name", `phase ${first + 1} has the name \`${phase.name}\` already`);
    if (phase.kind === "source") {
      if (laterKind !== undefined)
        blame(index, "kind", `a source phase can't come after a ${laterKind} phase`);
    } else {
      laterKind = phase.kind;
    }
    if (phase.kind === "publish") {
      if (publish !== undefined) blame(index, "kind", `only one phase can publish, and \`${publish}\` does`);
      else if (index !== phases.length - 1) blame(index, "kind", "the publish phase must be the last one");
      publish ??= phase.name;
    }
    for (const name of Object.keys(phase.secrets ?? {})) {
      if (phase.env === undefined || !Object.hasOwn(phase.env, name)) continue;
      const pointer = step(step(step("/spec/phases", index), "secrets"), name);
      problems.push({
        pointer,
        message: `\`${name}\` is given by \`env\` too; keep one of them`,
        at: "name",
      });
    }
  }
  const sources = Object.keys(spec.sources ?? {});
  if (sources.length > 0 && !phases.some(({ kind }) => kind === "source")) {
    const message = "sources need a phase of kind `source` that fetches them and reports their commits";
    problems.push({ pointer: "/spec/sources", message, at: "name" });
  }
  return problems;
}

/**
 * Half a surrogate pair is not Unicode: UTF-8 and PostgreSQL have no way to keep it. `__proto__` is a name
 * that some readers of the stored spec would take for something else.
 */
function textProblems(value: unknown, pointer: string): Problem[] {
  if (typeof value === "string") {
    const message = "must be well-formed Unicode, found half of a surrogate pair";
    return value.isWellFormed() ? [] : [{ pointer, message, at: "value" }];
  }
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([name, member]): Problem[] =>
    name === "__proto__"
      ? [{ pointer: step(pointer, name), message: "the name `__proto__` is not allowed", at: "name" }]
      : textProblems(member, step(pointer, name)),
  );
}
