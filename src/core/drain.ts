/** What can be drained: jobs, new sessions, what sessions are told, and work of programs' own. */
export const drainKinds = ["jobs", "sessions", "activations", "work"] as const;
export type DrainKind = (typeof drainKinds)[number];

export function isDrainKind(text: string): text is DrainKind {
  return (drainKinds as readonly string[]).includes(text);
}

/** How many unfinished resources of each group there are over all tenants; `countMax` means that many or more. */
export interface Left {
  readonly jobs: number;
  readonly sessions: number;
  readonly work: number;
  /** Work that somebody has to look at; no drain waits for it. */
  readonly suspended: number;
}

export const countMax = 100_000;

/** Of one kind: a session is drained when none has anything to do, and so is what it is told. */
export function leftOf(kind: DrainKind, left: Left): number {
  switch (kind) {
    case "jobs":
      return left.jobs;
    case "sessions":
    case "activations":
      return left.sessions;
    case "work":
      return left.work;
    default:
      return kind satisfies never;
  }
}
