import type { RuntimeRefusal } from "../../core/runtime.port.ts";
import { type Microseconds, microseconds } from "../../core/time.ts";
import { asFields, big, oneOf, parseFields, text } from "./fields.ts";
import type { StateRecord } from "./records.ts";

/**
 * What a controller may ask of an object, and the answer. All requests are decided here, one at a time, by
 * the one supervisor, so the check of UID and epoch in a release can't be separated from its effect by
 * somebody else's fence or stop. After the supervisor has ended the same rules answer from its files.
 */
export type ControlRequest =
  | { readonly op: "fence"; readonly uid: string; readonly epoch: bigint }
  | { readonly op: "release"; readonly uid: string; readonly epoch: bigint; readonly limit: Microseconds }
  | { readonly op: "stop"; readonly uid: string; readonly epoch: bigint }
  /** Answered when the object changes or the supervisor ends. */
  | { readonly op: "watch"; readonly uid: string };

export type Verdict = { readonly ok: true } | Refusal;
export interface Refusal {
  readonly ok: false;
  readonly reason: RuntimeRefusal["reason"];
  readonly message: string;
}

export interface Decision {
  readonly state: StateRecord;
  readonly verdict: Verdict;
  readonly act: "nothing" | "start" | "end";
}

/** Epochs only grow, and a release needs the very epoch that stands: whoever fenced last decides (E6). */
export function decide(state: StateRecord, request: Exclude<ControlRequest, { op: "watch" }>): Decision {
  const { epoch } = request;
  if (epoch < state.epoch) {
    return refuse(state, "superseded", `epoch ${epoch} is older than ${state.epoch}, which stands`);
  }
  const raised = epoch === state.epoch ? state : { ...state, epoch };
  switch (request.op) {
    case "fence":
      return accept(raised, "nothing");
    case "stop":
      return state.phase === "held" || state.phase === "running"
        ? accept({ ...raised, phase: "stopping" }, "end")
        : accept(raised, "nothing");
    case "release":
      if (state.releasedBy !== null) return accept(state, "nothing");
      if (state.phase !== "held") return refuse(state, "stopping", "it was stopped before it was released");
      if (epoch > state.epoch)
        return refuse(state, "invalid", `fence epoch ${epoch} before releasing with it`);
      if (request.limit <= 0n) return refuse(state, "invalid", "nothing is left of the deadline");
      return accept({ ...state, phase: "running", releasedBy: epoch }, "start");
  }
}

const accept = (state: StateRecord, act: Decision["act"]): Decision => ({
  state,
  verdict: { ok: true },
  act,
});

const refuse = (state: StateRecord, reason: Refusal["reason"], message: string): Decision => ({
  state,
  verdict: { ok: false, reason, message },
  act: "nothing",
});

export function readControlRequest(line: string): ControlRequest {
  const fields = parseFields(line);
  const op = oneOf(fields, "op", ["fence", "release", "stop", "watch"]);
  const uid = text(fields, "uid");
  switch (op) {
    case "watch":
      return { op, uid };
    case "release":
      return { op, uid, epoch: big(fields, "epoch"), limit: microseconds(big(fields, "limit")) };
    case "fence":
    case "stop":
      return { op, uid, epoch: big(fields, "epoch") };
  }
}

const refusals = ["superseded", "name_taken", "wrong_uid", "stopping", "gone", "invalid"] as const;

/** Throws what the supervisor reports as its own fault, such as a full disk: the request may be sent again. */
export function readVerdict(line: string): Verdict {
  const fields = asFields(JSON.parse(line), "the answer");
  if (fields.ok === true) return { ok: true };
  if (fields.fault !== undefined) throw new Error(`the supervisor failed: ${text(fields, "fault")}`);
  return { ok: false, reason: oneOf(fields, "reason", refusals), message: text(fields, "message") };
}
