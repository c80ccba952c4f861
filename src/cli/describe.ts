import type { ArtifactView, AttemptPlanView, AttemptView, LogArchiveView, SandboxView } from "../wire/job.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { type JobPicture, pictureOf } from "./follow.ts";
import { jobIdOf } from "./job-id.ts";
import {
  artifactWords,
  failureWords,
  phaseMark,
  phaseTime,
  phaseWord,
  progressWords,
  stateColor,
  stateWords,
} from "./job-words.ts";
import { spelled } from "./program-name.ts";
import type { Colors } from "./terminal.ts";
import { age, between, elapsed, instantText } from "./time-text.ts";
import { visible } from "./visible.ts";

/** `holdfast describe job ID`: all that is known of a job, in the words of a person. */
export async function describeJob(context: CommandContext, typed: string, flags: ServerFlags): Promise<void> {
  const client = clientOf(context, flags);
  const id = await jobIdOf(client, typed);
  const [picture, artifacts] = await Promise.all([pictureOf(client, id), client.listArtifacts(id)]);
  const plans = await Promise.all(picture.attempts.map(({ attempt }) => client.getAttemptPlan(id, attempt)));
  if (flags.output === "json" || flags.output === "yaml") {
    return printValue(context, flags.output, { ...picture, plans, artifacts });
  }
  const text = describe(picture, plans, artifacts, context.terminal.colors, context.now());
  await context.terminal.out(`${text.join("\n")}\n`);
}

function describe(
  { job, attempts }: JobPicture,
  plans: readonly AttemptPlanView[],
  artifacts: readonly ArtifactView[],
  colors: Colors,
  now: number,
): string[] {
  const labels = Object.entries(job.labels).map(([key, value]) => visible(`${key}=${value}`));
  const lines = [
    field("Job", colors.bold(visible(job.name))),
    field("ID", job.id),
    field("State", stateColor(job.state, colors)(stateWords(job))),
    field("Priority", `${job.priority} (0 is the most urgent)`),
    field("Labels", labels.length === 0 ? "none" : labels.join(", ")),
    field("Submitted", `${instantText(job.created_at)} (${age(job.created_at, now)} ago)`),
  ];
  if (job.cancel_requested_at !== null) {
    lines.push(field("Cancelled", `asked for at ${instantText(job.cancel_requested_at)}`));
  }
  if (job.finished_at !== null) lines.push(field("Finished", instantText(job.finished_at)));
  lines.push(field("Spec", `sha256:${job.spec_digest}, version ${job.resource_version}`));
  if (attempts.length === 0) lines.push("", "It waits for a slot; no attempt has started yet.");
  for (const [index, attempt] of attempts.entries()) {
    lines.push("", ...attemptLines(attempt, plans[index], colors, now));
  }
  if (artifacts.length > 0) lines.push("", "Artifacts");
  for (const artifact of artifacts) {
    const kept =
      artifact.removed_at === null
        ? `kept until ${instantText(artifact.retain_until)}`
        : `removed at ${instantText(artifact.removed_at)}`;
    lines.push(`  ${artifactWords(artifact)}, ${kept}`);
  }
  return lines;
}

const field = (name: string, text: string): string => `${name.padEnd(12)} ${text}`;

function attemptLines(
  attempt: AttemptView,
  plan: AttemptPlanView | undefined,
  colors: Colors,
  now: number,
): string[] {
  const until = attempt.finished_at;
  const state = attempt.outcome ?? "running";
  const took = until === null ? age(attempt.started_at, now) : between(attempt.started_at, until);
  const lines = [
    `Attempt ${attempt.attempt}    ${stateColor(state, colors)(state)}, ${took}, pool ${visible(attempt.pool)}`,
    `  started at ${instantText(attempt.started_at)}, deadline ${instantText(attempt.deadline)}`,
  ];
  if (attempt.failure !== null) {
    lines.push(`  ${colors.red(`It failed: ${failureWords(attempt.failure)}.`)}`);
  }
  if (plan !== undefined) lines.push(...planLines(plan));
  for (const [source, commit] of Object.entries(attempt.pins)) {
    lines.push(`  pin ${visible(source)} ${visible(commit)}`);
  }
  lines.push("  Phases");
  for (const phase of attempt.phases) {
    const words = [
      phaseMark(phaseWord(phase)),
      visible(phase.name).padEnd(16),
      phase.kind.padEnd(8),
      phaseWord(phase).padEnd(10),
      phaseTime(phase, now),
      progressWords(phase),
    ];
    lines.push(stateColor(phaseWord(phase), colors)(`    ${words.join(" ").trimEnd()}`));
  }
  if (attempt.sandboxes.length > 0) lines.push("  Sandboxes");
  for (const sandbox of attempt.sandboxes) lines.push(...sandboxLines(sandbox, colors));
  if (attempt.log !== null) lines.push(`  ${logWords(attempt.log)}`);
  if (attempt.cleaned_at !== null) lines.push(`  cleaned at ${instantText(attempt.cleaned_at)}`);
  return lines;
}

/** What it was going to do: kept for good, also when nothing else of it is (E14). */
function planLines({ plan, plan_digest }: AttemptPlanView): string[] {
  const deadline = elapsed(Number(plan.deadline_us) / 1000);
  return [
    `  Plan sha256:${plan_digest}, runtime ${visible(plan.runtime)}, at most ${deadline}`,
    ...Object.entries(plan.sources).map(
      ([name, { repository, ref }]) => `    source ${visible(name)} ${visible(repository)} ${visible(ref)}`,
    ),
    ...plan.phases.map(({ name, image, command }) => {
      const where = image === null ? "" : ` (${visible(image)})`;
      return `    ${visible(name)}${where}: ${shortened(command.map(visible).join(" "))}`;
    }),
  ];
}

const shortened = (text: string): string => (text.length > 100 ? `${text.slice(0, 99)}…` : text);

function logWords({ lines, bytes, retain_until, removed_at }: LogArchiveView): string {
  const kept =
    removed_at === null ? `kept until ${instantText(retain_until)}` : `removed at ${instantText(removed_at)}`;
  return `Log: ${lines} ${lines === 1 ? "line" : "lines"}, archived in ${bytes} bytes, ${kept}`;
}

/** One line of life: each step with the time since the one before it. */
function sandboxLines(sandbox: SandboxView, colors: Colors): string[] {
  const steps = [
    ["planned", sandbox.planned_at],
    ["held", sandbox.held_at],
    ["released", sandbox.released_at],
    ["stopping", sandbox.stopping_at],
    ["stopped", sandbox.stopped_at],
    ["removed", sandbox.removed_at],
  ] as const;
  let before = sandbox.planned_at;
  const life = steps.flatMap(([name, at]) => {
    if (at === null) return [];
    const text =
      name === "planned" ? `planned ${instantText(at).slice(11)}` : `${name} +${between(before, at)}`;
    before = at;
    return [text];
  });
  const uid = sandbox.uid === null ? "no UID yet" : `UID ${visible(sandbox.uid)}`;
  const lines = [
    `    ${visible(sandbox.phase)}: ${visible(sandbox.runtime)} ${visible(sandbox.name)}, ${uid}`,
    `      ${life.join(" → ")}`,
  ];
  if (sandbox.outcome !== null) lines.push(`      ${outcomeWords(sandbox)}`);
  if (sandbox.stop_unproven !== null) {
    const { since, reason } = sandbox.stop_unproven;
    const what = `Its stop has not been proven since ${instantText(since)}: ${visible(reason)}.`;
    const then =
      sandbox.overridden_by === null
        ? spelled(
            "Its slot stays taken until it is. `holdfast confirm-stopped` takes an operator's word for it.",
          )
        : `Principal ${sandbox.overridden_by} declared that it has stopped.`;
    lines.push(`      ${colors.yellow(`${what} ${then}`)}`);
  }
  if (sandbox.log_truncated) lines.push(`      Its log was cut off after ${sandbox.log_bytes} bytes.`);
  return lines;
}

function outcomeWords({ outcome, exit_code, message, stop_reason, stop_proof }: SandboxView): string {
  const code = exit_code === null ? "" : ` with code ${exit_code}`;
  const why = stop_reason === null ? "" : `, stopped because: ${visible(stop_reason)}`;
  const said = message === null ? "" : `: ${visible(message)}`;
  const proof = stop_proof === null ? "" : ` (proof of stop: ${visible(stop_proof)})`;
  return `${visible(outcome ?? "")}${code}${said}${why}${proof}`;
}
