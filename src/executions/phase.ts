import type { PhaseState } from "./attempt.ts";

export type PhaseEvent = "start" | "succeed" | "fail" | "skip";

/** The whole life of a phase; the database refuses the same moves (`execution_phases_transitions`). */
export const phaseTransitions: Readonly<Record<PhaseState, Readonly<Record<PhaseEvent, PhaseState | null>>>> =
  {
    pending: { start: "running", succeed: null, fail: null, skip: "skipped" },
    running: { start: null, succeed: "succeeded", fail: "failed", skip: null },
    succeeded: { start: null, succeed: null, fail: null, skip: null },
    failed: { start: null, succeed: null, fail: null, skip: null },
    skipped: { start: null, succeed: null, fail: null, skip: null },
  };
