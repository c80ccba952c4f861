/** What a live item is at: in its lease row. */
export type LiveState =
  | "pending"
  | "leased"
  | "permitted"
  | "retry_wait"
  | "cancel_pending"
  | "reconciling"
  | "suspended";

/** How a finished item ended: in its row of history. */
export type EndState =
  | "succeeded"
  | "succeeded_after_cancel_requested"
  | "failed"
  | "cancelled_before_effect";

export type WorkState = LiveState | EndState;

export type WorkEvent =
  | "claim"
  | "admit"
  | "succeed"
  | "fail"
  | "close"
  | "retry"
  | "give_back"
  | "lose"
  | "reconcile"
  | "cancel"
  | "suspend"
  | "prove"
  | "resume";

type Row = Readonly<Partial<Record<WorkEvent, readonly WorkState[]>>>;

/** Where each event may take an item; an event that a row lacks is refused. Several targets: the facts decide. */
export const workTransitions: Readonly<Record<LiveState, Row>> = {
  pending: {
    claim: ["leased"],
    // A worker that knows the line takes and admits it at once.
    admit: ["permitted"],
    cancel: ["cancelled_before_effect"],
    suspend: ["suspended"],
  },
  leased: {
    claim: ["leased"],
    admit: ["permitted"],
    give_back: ["pending", "retry_wait"],
    close: ["failed", "suspended"],
    cancel: ["cancelled_before_effect", "suspended"],
    suspend: ["suspended"],
  },
  permitted: {
    succeed: ["succeeded"],
    fail: ["failed", "suspended"],
    retry: ["retry_wait"],
    give_back: ["pending", "retry_wait"],
    lose: ["retry_wait", "reconciling", "suspended"],
    cancel: ["cancel_pending"],
  },
  retry_wait: {
    claim: ["leased"],
    admit: ["permitted"],
    cancel: ["cancelled_before_effect", "suspended"],
    suspend: ["suspended"],
  },
  cancel_pending: {
    succeed: ["succeeded_after_cancel_requested"],
    fail: ["failed", "suspended"],
    give_back: ["cancelled_before_effect", "suspended"],
    lose: ["reconciling", "suspended"],
    cancel: ["cancel_pending"],
  },
  reconciling: {
    claim: ["reconciling"],
    give_back: ["reconciling"],
    prove: [
      "succeeded",
      "succeeded_after_cancel_requested",
      "cancelled_before_effect",
      "failed",
      "retry_wait",
      "suspended",
    ],
    cancel: ["reconciling"],
  },
  suspended: {
    prove: [
      "succeeded",
      "succeeded_after_cancel_requested",
      "cancelled_before_effect",
      "failed",
      "retry_wait",
      "suspended",
    ],
    resume: ["pending", "retry_wait"],
    cancel: ["cancelled_before_effect", "suspended"],
  },
};

export const liveStates = Object.keys(workTransitions) as readonly LiveState[];

/** The moves between live states that the table has, as the database's trigger names them. */
export function liveEdges(): ReadonlySet<string> {
  const live: ReadonlySet<string> = new Set(liveStates);
  return new Set(
    liveStates.flatMap((from) =>
      Object.values(workTransitions[from])
        .flat()
        .filter((to) => live.has(to) && to !== from)
        .map((to) => `${from}>${to}`),
    ),
  );
}
