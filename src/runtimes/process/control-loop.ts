import { setTimeout as delay } from "node:timers/promises";
import { HoldfastError } from "../../core/errors.ts";
import { RuntimeRefusal } from "../../core/runtime.port.ts";
import { type ControlRequest, decide, type Verdict } from "./control.ts";
import { ask, NoAnswer } from "./control-client.ts";
import { close, type Look, look, readStanding } from "./evidence.ts";
import type { Folder } from "./layout.ts";
import { firstState, type RequestRecord, type StateRecord } from "./records.ts";
import { type Launcher, type StartedSupervisor, startSupervisor } from "./start-supervisor.ts";

const pauseMilliseconds = 5;
const answerMilliseconds = 15_000;

export interface ControlContext {
  readonly folder: Folder;
  readonly request: RequestRecord;
  readonly launcher: Launcher;
}

/**
 * Get a request decided, in whatever state the object is found: by its supervisor; by its files when that
 * has ended; and when there never was one, start one (or, for a stop, see to it that there will be none).
 */
export async function control(
  context: ControlContext,
  asked: Exclude<ControlRequest, { op: "watch" }>,
  caller: AbortSignal,
): Promise<void> {
  const signal = AbortSignal.any([caller, AbortSignal.timeout(answerMilliseconds)]);
  const starter = new Starter(context);
  for (;;) {
    signal.throwIfAborted();
    const verdict = await attempt(context, asked, await look(context.folder), starter, signal);
    if (verdict?.ok === true) return;
    if (verdict !== null) throw new RuntimeRefusal(verdict.reason, verdict.message);
    await delay(pauseMilliseconds, undefined, { signal });
  }
}

/** Null: not decided yet, look again. */
async function attempt(
  context: ControlContext,
  asked: Exclude<ControlRequest, { op: "watch" }>,
  seen: Look,
  starter: Starter,
  signal: AbortSignal,
): Promise<Verdict | null> {
  switch (seen.kind) {
    case "absent":
      return { ok: false, reason: "gone", message: "the object was removed" };
    case "unproven":
      throw new HoldfastError("unavailable", seen.reason);
    case "stopped":
      return decide(await finalState(context), asked).verdict;
    case "unclaimed": {
      const { verdict } = decide(firstState(context.request), asked);
      if (!verdict.ok) return verdict;
      if (asked.op === "stop") await close(context.folder, "it was stopped before it had a supervisor");
      else await starter.start();
      return null;
    }
    case "live":
      try {
        return await ask(seen.socket, asked, signal);
      } catch (error) {
        // Not listening yet, or ended in between.
        if (error instanceof NoAnswer) return null;
        throw error;
      }
  }
}

/** One supervisor a call: several controllers may each start one, and the first to claim the folder stays. */
class Starter {
  readonly #context: ControlContext;
  #started: StartedSupervisor | null = null;
  #failure: string | null = null;

  constructor(context: ControlContext) {
    this.#context = context;
  }

  async start(): Promise<void> {
    if (this.#failure !== null) {
      throw new HoldfastError("unavailable", `the sandbox's supervisor ended at once: ${this.#failure}`);
    }
    if (this.#started !== null) return;
    this.#started = await startSupervisor(this.#context.folder, this.#context.launcher);
    void this.#started.exited.then((words) => {
      this.#failure = words;
    });
  }
}

/** An object that has ended keeps its epoch, and whether it was ever released. */
async function finalState(context: ControlContext): Promise<StateRecord> {
  const state = (await readStanding(context.folder)) ?? firstState(context.request);
  return { ...state, phase: "stopped" };
}
