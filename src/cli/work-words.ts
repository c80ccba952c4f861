import type { WorkDetail } from "../client/client.ts";
import { spelled } from "./program-name.ts";
import type { Colors } from "./terminal.ts";
import { age, between, elapsed, instantText } from "./time-text.ts";
import { visible } from "./visible.ts";

export function workColor(state: string, colors: Colors): (text: string) => string {
  if (state === "failed") return colors.red;
  if (state.startsWith("succeeded")) return colors.green;
  return state === "suspended" || state === "reconciling" ? colors.yellow : (text) => text;
}

const field = (name: string, text: string): string => `${name.padEnd(12)} ${text}`;
const spanned = (microseconds: string): string => elapsed(Number(BigInt(microseconds) / 1000n));

/** An item in sentences: how it stands, what holds for it, and its time line. */
export function workLines(work: WorkDetail, colors: Colors, now: number): string[] {
  const { failure, plan, deadline, deadline_reached_at: reached, circuit } = work;
  const lines = [
    field("Work", `${colors.bold(visible(work.name))}, version ${visible(work.version)}`),
    field("ID", work.id),
    field("State", workColor(work.state, colors)(stateSentence(work, now))),
    field("Accepted", `${instantText(work.accepted_at)} (${age(work.accepted_at, now)} ago)`),
    field("Waits in", `queue ${visible(work.queue)}, priority ${work.priority} (0 is the most urgent)`),
    field("Policy", policySentence(work, plan)),
    field("Safety", `${work.safety}: ${safetyWords[work.safety] ?? ""}`),
    field("Admission", admissionSentence(work, now)),
  ];
  if (deadline !== null) {
    const seen = reached === null ? "" : `, first seen to have passed at ${instantText(reached)}`;
    lines.push(field("Deadline", `${instantText(deadline)}${seen}; never extended`));
  }
  if (work.key !== null) lines.push(field("Key", visible(work.key)));
  if (work.provider_key !== null) lines.push(field("At provider", visible(work.provider_key)));
  if (circuit !== null) lines.push(field("Circuit", circuitSentence(work.circuit_key ?? "", circuit)));
  if (failure !== null) lines.push(field("Failure", `${visible(failure.code)}: ${visible(failure.message)}`));
  lines.push("", "Time line");
  for (const { at, text } of timeLine(work, now)) lines.push(`  ${instantText(at)}  ${text}`);
  return lines;
}

const safetyWords: Readonly<Record<string, string>> = {
  idempotent: "after a lost worker it is tried again",
  provider_keyed: "after a lost worker it is tried again, with the same key at its provider",
  reconcile_before_retry: "after a lost worker its version's reconciler is asked what happened",
  manual_resolution: "after a lost worker somebody has to say what happened",
};

/** A state alone says what; this says what has to happen for it to change. */
export function stateSentence(
  {
    state,
    suspended,
    next_due_at: due,
    lease,
    finished_at,
  }: Pick<WorkDetail, "state" | "suspended" | "next_due_at" | "lease" | "finished_at">,
  now: number,
): string {
  const by = lease === null ? "" : ` by ${lease.holder}, whose lease ${leaseWords(lease.until, now)}`;
  switch (state) {
    case "pending":
      return due === null ? "pending" : `pending: its first attempt is due at ${instantText(due)}`;
    case "retry_wait":
      return due === null ? "retry_wait" : `retry_wait: its next attempt is due at ${instantText(due)}`;
    case "leased":
      return `leased: taken${by}; no code of it has been called`;
    case "permitted":
      return `permitted: its code runs, or may have been called${by}`;
    case "cancel_pending":
      return `cancel_pending: its end was asked for while it runs${by}; what it does still counts`;
    case "reconciling":
      return "reconciling: its version's reconciler is asked what the lost attempt did";
    case "suspended":
      return `suspended: ${suspended === null ? "nobody knows why" : suspendedSentence(suspended.reason)}`;
    case "succeeded":
    case "succeeded_after_cancel_requested":
    case "failed":
    case "cancelled_before_effect":
      return finished_at === null ? state : `${state} at ${instantText(finished_at)}`;
  }
}

/** An expired one is found by a worker alone: what follows is decided by what the code of its version declares. */
function leaseWords(until: string, now: number): string {
  return Date.parse(until) > now
    ? `lasts until ${instantText(until)}`
    : `ran out at ${instantText(until)}: the next worker of its version and queue that is alive takes it up`;
}

const suspendedWords = {
  outcome_unknown:
    "nobody knows what its last attempt did; look, then `holdfast work resolve ID --verdict …`",
  not_applied: "its last attempt did nothing; `holdfast work requeue ID` has it tried again",
  tenant_disabled: "its tenant is disabled for good",
  operator: "an operator took it out; `holdfast work release ID` puts it back",
} as const;

/** Why it is out of its line, and what puts it back. */
export function suspendedSentence(reason: keyof typeof suspendedWords): string {
  return spelled(suspendedWords[reason]);
}

function policySentence(work: WorkDetail, plan: WorkDetail["plan"]): string {
  const { attempts_max: most, retry } = work;
  const within = `within ${spanned(retry.elapsed_max_us)} of its acceptance`;
  if (plan !== null) {
    const offsets = plan.slots.slice(0, 8).map(({ offset_us }) => `+${spanned(offset_us)}`);
    const more = plan.slots.length > 8 ? `, and ${plan.slots.length - 8} more` : "";
    return `planned (${visible(plan.version)}): attempts at ${offsets.join(", ")}${more}; circuit window ${spanned(plan.circuit_us)}`;
  }
  const pauses = `pauses from ${spanned(retry.initial_us)} to ${spanned(retry.longest_us)}`;
  return `${work.policy}: up to ${most} attempts ${within}, ${pauses}`;
}

function admissionSentence(
  { admission_closed: closed, cutoff_at: cutoff, finished_at }: WorkDetail,
  now: number,
): string {
  if (closed !== null) return `closed: first seen at ${instantText(closed.at)} (${closed.reason})`;
  if (finished_at !== null) return `it was open until ${instantText(cutoff)}`;
  return Date.parse(cutoff) <= now
    ? `its time ended at ${instantText(cutoff)}; the next look closes it`
    : `a new attempt may begin before ${instantText(cutoff)}`;
}

function circuitSentence(key: string, circuit: NonNullable<WorkDetail["circuit"]>): string {
  const failures = `${circuit.failures} ${circuit.failures === 1 ? "failure" : "failures"} in a row`;
  if (circuit.opened_at === null) return `${visible(key)} is closed, after ${failures}`;
  const probe = circuit.probe_at === null ? "" : `; one is let through from ${instantText(circuit.probe_at)}`;
  return `${visible(key)} is open since ${instantText(circuit.opened_at)}, after ${failures}${probe}`;
}

interface Moment {
  readonly at: string;
  readonly text: string;
}

/** Everything that happened, and every planned attempt, in the order of their times. */
export function timeLine(work: WorkDetail, now: number): Moment[] {
  const { admission_closed: closed, deadline_reached_at: reached, cancel, finished_at: finished } = work;
  return [
    { at: work.accepted_at, text: "It was accepted." },
    ...plannedMoments(work, now),
    ...work.attempt_log.flatMap((attempt) => attemptMoments(attempt, work)),
    ...work.suspensions.flatMap(suspensionMoments),
    ...work.observations.map(({ at, attempt, outcome, reason }) => ({
      at,
      text: `A late word came: attempt ${attempt} ${outcome}. It is quarantined (${reason}) and decides nothing.`,
    })),
    ...(cancel === null
      ? []
      : [{ at: cancel.at, text: `${visible(cancel.by)} asked for its end: ${visible(cancel.reason)}.` }]),
    ...(closed === null ? [] : [{ at: closed.at, text: `Admission was seen closed: ${closed.reason}.` }]),
    ...(reached === null ? [] : [{ at: reached, text: "Its deadline was seen to have passed." }]),
    ...(finished === null ? [] : [{ at: finished, text: `It ended: ${work.state}.` }]),
  ].toSorted((left, right) => (left.at < right.at ? -1 : left.at > right.at ? 1 : 0));
}

/** A slot that was used is told of by its attempt; of the others only these say anything. */
function plannedMoments({ plan, finished_at, admission_closed }: WorkDetail, now: number): Moment[] {
  return (plan?.slots ?? [])
    .filter(({ came }) => came === "not_used")
    .map(({ attempt, eligible_at: at, offset_us }) => {
      const slot = `Attempt ${attempt} (planned at +${spanned(offset_us)})`;
      if (finished_at !== null || admission_closed !== null)
        return { at, text: `${slot} was not needed or not admitted.` };
      return {
        at,
        text: Date.parse(at) > now ? `${slot} is due then.` : `${slot} was due then and has not begun.`,
      };
    });
}

function attemptMoments(
  attempt: WorkDetail["attempt_log"][number],
  { plan, accepted_at }: WorkDetail,
): Moment[] {
  const { attempt: number, outcome, admitted_at: admitted, ended_at: ended, failure, proof } = attempt;
  const slot = plan?.slots.find((one) => one.attempt === number);
  const late =
    admitted === null
      ? ""
      : slot === undefined
        ? `, ${between(accepted_at, admitted)} after acceptance`
        : `, ${between(slot.eligible_at, admitted)} after its slot at +${spanned(slot.offset_us)}`;
  const moments: Moment[] = [];
  if (admitted !== null) moments.push({ at: admitted, text: `Attempt ${number} was admitted${late}.` });
  if (ended !== null) {
    const why = failure === null ? "" : ` (${visible(failure.code)}: ${visible(failure.message)})`;
    moments.push({ at: ended, text: `Attempt ${number} ${endedWords[outcome] ?? outcome}${why}.` });
  }
  if (proof !== null) {
    moments.push({ at: proof.at, text: `${proofSentence(number, proof)}.` });
  }
  return moments;
}

export function proofSentence(
  attempt: number,
  { by, verdict, note }: NonNullable<WorkDetail["attempt_log"][number]["proof"]>,
): string {
  const happened = verdict === "applied" ? "has happened" : "has not happened";
  return `${visible(by)} settled attempt ${attempt}: its effect ${happened}${note === null ? "" : `: ${visible(note)}`}`;
}

const endedWords: Readonly<Record<string, string>> = {
  succeeded: "succeeded",
  failed: "failed",
  unknown: "was lost with its worker: nobody knows what it did",
  returned: "was given back before any of its code was called, and does not count",
};

function suspensionMoments(one: WorkDetail["suspensions"][number]): Moment[] {
  const by = one.by === null ? "" : ` by ${visible(one.by)}`;
  const out = { at: one.since, text: `It was taken out of its line${by}: ${one.reason}.` };
  if (one.ended_at === null) return [out];
  const who = one.ended_by === null ? "" : ` by ${visible(one.ended_by)}`;
  return [out, { at: one.ended_at, text: `That ended: ${one.ending}${who}.` }];
}
