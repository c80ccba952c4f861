import type { AttemptView } from "../client/client.ts";

type SandboxView = AttemptView["sandboxes"][number];

/** A stretch of a sandbox's life, in fractions of the line: what it was, and from when to when. */
export interface Stretch {
  readonly state: "planned" | "held" | "released" | "stopping";
  readonly left: number;
  readonly width: number;
  readonly from: string;
  /** Null while it lasts. */
  readonly until: string | null;
}

export interface Line {
  readonly sandbox: SandboxView;
  readonly stretches: readonly Stretch[];
}

export interface TimeLine {
  /** Milliseconds that the whole line stands for. */
  readonly spanMs: number;
  readonly linesOf: (phase: string) => readonly Line[];
  /** Where the deadline is; null when it lies beyond the line. */
  readonly deadline: number | null;
  /** Where now is; null when the attempt has ended. */
  readonly now: number | null;
  readonly ticks: readonly { readonly at: number; readonly label: string }[];
}

const leastMs = 1_000;
/** A deadline further away than so many lines would squeeze everything into its beginning. */
const deadlineWithin = 2;
const steps = [
  100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000,
  1_800_000, 3_600_000,
];

/** Where everything of an attempt stands on a line from its start until now, its end or its deadline. */
export function timeLine(attempt: AttemptView, now: number): TimeLine {
  const start = Date.parse(attempt.started_at);
  const ends = attempt.sandboxes.flatMap(({ stopped_at }) =>
    stopped_at === null ? [] : [Date.parse(stopped_at)],
  );
  const end = attempt.finished_at === null ? now : Math.max(Date.parse(attempt.finished_at), ...ends);
  const took = Math.max(leastMs, end - start);
  const deadline = Date.parse(attempt.deadline) - start;
  const spanMs = deadline <= took * deadlineWithin ? Math.max(took, deadline) : took;
  const place = (at: number) => Math.min(1, Math.max(0, (at - start) / spanMs));
  return {
    spanMs,
    linesOf: (phase) =>
      attempt.sandboxes
        .filter((sandbox) => sandbox.phase === phase)
        .map((sandbox) => ({ sandbox, stretches: stretchesOf(sandbox, place, end) })),
    deadline: deadline <= spanMs ? deadline / spanMs : null,
    now: attempt.finished_at === null ? place(now) : null,
    ticks: ticksOf(spanMs),
  };
}

function stretchesOf(sandbox: SandboxView, place: (at: number) => number, end: number): Stretch[] {
  const begins = [
    ["planned", sandbox.planned_at],
    ["held", sandbox.held_at],
    ["released", sandbox.released_at],
    ["stopping", sandbox.stopping_at],
  ] as const;
  const known = begins.flatMap(([state, from]) => (from === null ? [] : [{ state, from }]));
  return known.map(({ state, from }, index) => {
    const until = known[index + 1]?.from ?? sandbox.stopped_at;
    const left = place(Date.parse(from));
    return { state, from, until, left, width: place(until === null ? end : Date.parse(until)) - left };
  });
}

function ticksOf(spanMs: number): TimeLine["ticks"] {
  const step = steps.find((one) => spanMs / one <= 6) ?? 7_200_000;
  const ticks = [];
  for (let at = 0; at <= spanMs * 0.92; at += step) ticks.push({ at: at / spanMs, label: tickLabel(at) });
  return ticks;
}

function tickLabel(milliseconds: number): string {
  if (milliseconds === 0) return "0";
  if (milliseconds < 1_000) return `${milliseconds} ms`;
  if (milliseconds < 60_000) return `${milliseconds / 1_000} s`;
  if (milliseconds < 3_600_000) return `${milliseconds / 60_000} min`;
  return `${milliseconds / 3_600_000} h`;
}
