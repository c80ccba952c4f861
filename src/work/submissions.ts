import { setImmediate as roundOver } from "node:timers/promises";
import { isHoldfastError } from "../core/errors.ts";
import { batchMax, type Submitted } from "./submit.ts";

/** What one caller submits: all of it or nothing. */
export interface SubmitCall {
  readonly tenant: string;
  readonly deploymentEpoch: bigint | null;
  readonly name: string;
  readonly version: string;
  readonly items: readonly unknown[];
}

interface Caller {
  readonly call: SubmitCall;
  readonly resolve: (submitted: Submitted[]) => void;
  readonly reject: (error: unknown) => void;
}

/**
 * Lets many callers share a statement and its commit. What comes in one round of the event loop goes together, and
 * what comes while a statement is under way goes with the next: nobody waits for anything else. Each caller has its
 * own answer once its items are durable, and its own error: callers that fail together are asked again in halves.
 */
export function shareSubmissions(
  send: (call: SubmitCall) => Promise<Submitted[]>,
): (call: SubmitCall) => Promise<Submitted[]> {
  /** Who waits, by tenant, work and version, while a statement of theirs is under way. */
  const lines = new Map<string, Caller[]>();

  async function serve(name: string, waiting: Caller[]): Promise<void> {
    while (waiting.length > 0) {
      await roundOver();
      await together(firstOf(waiting));
    }
    lines.delete(name);
  }

  async function together(callers: readonly Caller[]): Promise<void> {
    const [first] = callers;
    if (first === undefined) return;
    const items = callers.flatMap(({ call }) => call.items);
    try {
      const submitted = await send({ ...first.call, items });
      let from = 0;
      for (const { call, resolve } of callers) resolve(submitted.slice(from, (from += call.items.length)));
    } catch (error) {
      // An answer that was lost is everybody's; a refusal may be of one caller's items.
      if (callers.length === 1 || isHoldfastError(error, "unavailable")) {
        for (const { reject } of callers) reject(error);
        return;
      }
      const middle = Math.ceil(callers.length / 2);
      await together(callers.slice(0, middle));
      await together(callers.slice(middle));
    }
  }

  return (call) =>
    new Promise((resolve, reject) => {
      const name = `${call.tenant} ${call.name} ${call.version}`;
      const caller = { call, resolve, reject };
      const line = lines.get(name);
      if (line !== undefined) {
        line.push(caller);
        return;
      }
      const waiting = [caller];
      lines.set(name, waiting);
      void serve(name, waiting);
    });
}

/** Takes as many out as one statement may have, and at least one. */
function firstOf(waiting: Caller[]): Caller[] {
  let items = 0;
  const past = waiting.findIndex(({ call }, place) => {
    items += call.items.length;
    return place > 0 && items > batchMax;
  });
  return waiting.splice(0, past === -1 ? waiting.length : past);
}
