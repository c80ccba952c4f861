import { join } from "node:path";
import type { SandboxOutcome } from "../../core/runtime.port.ts";
import { type Instant, type Microseconds, toMilliseconds } from "../../core/time.ts";
import { Command, type CommandEnd } from "./command.ts";
import { type ControlRequest, decide, type Verdict } from "./control.ts";
import { ControlServer } from "./control-server.ts";
import { createSync, isCode, replaceSync } from "./durable.ts";
import { commandEnvironment } from "./environment.ts";
import { toJson } from "./fields.ts";
import { files } from "./layout.ts";
import { firstState, now, type OutcomeRecord, type RequestRecord, type StateRecord } from "./records.ts";
import { Timer } from "./timer.ts";

const recordRetryMilliseconds = 1_000;

/** Why we end it, when it doesn't end by itself. */
type Ending = "stopped" | "deadline" | "evicted";

/**
 * The life of one sandbox inside its supervisor: held → running → stopping → its outcome on disk. Every
 * decision is recorded before it has an effect, in one step of the event loop.
 */
export class Supervision {
  readonly #path: string;
  readonly #request: RequestRecord;
  readonly #privateEnv: Readonly<Record<string, string>>;
  readonly #server: ControlServer;
  readonly #holdTimer = new Timer();
  readonly #limitTimer = new Timer();
  #state: StateRecord;
  #saved = false;
  #command: Command | null = null;
  #startedAt: Instant | null = null;
  #ending: Ending | null = null;

  constructor(
    path: string,
    request: RequestRecord,
    privateEnv: Readonly<Record<string, string>>,
    socket: string,
  ) {
    this.#path = path;
    this.#request = request;
    this.#privateEnv = privateEnv;
    this.#state = firstState(request);
    this.#server = new ControlServer(socket, request.uid, (asked) => this.#answer(asked));
  }

  begin(): void {
    this.#save(this.#state);
    this.#holdTimer.set(toMilliseconds(this.#request.holdLimit), () => {
      this.#neverStarted("nobody released it within its hold limit");
    });
    // The host goes down, or an administrator ends us: the command must not outlive its supervision.
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const) {
      process.on(signal, () => this.#end("evicted", `its supervisor got ${signal}`));
    }
    // A defect here must not leave a command without anybody who ends it.
    process.on("uncaughtException", (error) => {
      this.#command?.killNow();
      process.stderr.write(`${error.stack ?? error.message}\n`);
      process.exit(1);
    });
    this.#server.listen();
  }

  #answer(request: Exclude<ControlRequest, { op: "watch" }>): Verdict {
    const decision = decide(this.#state, request);
    switch (decision.act) {
      case "nothing":
        this.#save(decision.state);
        break;
      case "start":
        this.#save(decision.state);
        if (request.op === "release") this.#start(request.limit);
        break;
      case "end":
        this.#saveIfPossible(decision.state);
        this.#end("stopped", "a controller stopped it");
        break;
    }
    return decision.verdict;
  }

  /** Runs at most once: `releasedBy` admits one start, and the exclusive mark on disk admits one as well. */
  #start(limit: Microseconds): void {
    this.#holdTimer.clear();
    try {
      const environment = commandEnvironment(this.#path, this.#request, this.#privateEnv);
      if (!createSync(join(this.#path, files.started), "")) throw new Error("it was started before");
      this.#limitTimer.set(toMilliseconds(limit), () => this.#end("deadline", "its time limit passed"));
      this.#command = new Command(this.#path, this.#request, environment, (end) => this.#ended(end));
      this.#startedAt = now();
    } catch (error) {
      this.#startFailed(error instanceof Error ? error.message : String(error));
    }
  }

  /** TERM to everything of it, KILL after the grace. Held: it is over at once, and nothing ever started. */
  #end(ending: Ending, why: string): void {
    if (this.#state.releasedBy === null) {
      this.#neverStarted(why);
      return;
    }
    if (this.#ending !== null || this.#command === null) return;
    this.#ending = ending;
    this.#command.end(toMilliseconds(this.#request.spec.grace));
    this.#saveIfPossible({ ...this.#state, phase: "stopping" });
  }

  #neverStarted(why: string): void {
    this.#finish({ ...blank, kind: "never_started", message: `It never started: ${why}.` });
  }

  #startFailed(why: string): void {
    this.#finish({
      ...blank,
      kind: "start_failed",
      message: `The command could not be started: ${why}.`.slice(0, 1_000),
    });
  }

  #ended(end: CommandEnd): void {
    switch (end.kind) {
      case "failed":
        this.#startFailed(end.message);
        return;
      case "ended": {
        const kind = end.asked ? (this.#ending ?? "stopped") : end.signal === null ? "exited" : "signaled";
        const { exitCode, signal } = end;
        const how = signal === null ? `exit code ${exitCode}` : `signal ${signal}`;
        const lost = end.dropped === 0n ? "" : ` ${end.dropped} bytes of its output were not kept.`;
        const message = `${endings[kind]} ${how}.${lost}`;
        this.#finish({ kind, exitCode, signal, message, startedAt: this.#startedAt, finishedAt: null });
      }
    }
  }

  /**
   * Record, then leave nothing behind: no process, no socket. A full disk is waited for; when the folder was
   * deleted by hand, there is nobody left to tell.
   */
  #finish(outcome: SandboxOutcome): void {
    this.#holdTimer.clear();
    this.#limitTimer.clear();
    const record: OutcomeRecord = {
      outcome: { ...outcome, finishedAt: now() },
      proof: "the supervisor's own record, written after it found no process of the sandbox",
    };
    try {
      createSync(join(this.#path, files.outcome), toJson(record));
    } catch (error) {
      if (isCode(error, "ENOENT")) {
        this.#server.close();
        return;
      }
      process.stderr.write(`the outcome can't be recorded yet: ${String(error)}\n`);
      this.#state = { ...this.#state, phase: "stopping" };
      setTimeout(() => this.#finish(outcome), recordRetryMilliseconds);
      return;
    }
    this.#server.close();
  }

  /** Ending goes on without its record: were the supervisor to die, nothing could start after it anyway. */
  #saveIfPossible(state: StateRecord): void {
    try {
      this.#save(state);
    } catch (error) {
      this.#state = state;
      process.stderr.write(`the state can't be recorded: ${String(error)}\n`);
    }
  }

  #save(state: StateRecord): void {
    if (state === this.#state && this.#saved) return;
    replaceSync(join(this.#path, files.state), toJson(state));
    this.#state = state;
    this.#saved = true;
    this.#server.changed();
  }
}

const blank = { exitCode: null, signal: null, startedAt: null, finishedAt: null };

const endings: Record<Ending | "exited" | "signaled", string> = {
  exited: "It ended by itself with",
  signaled: "It was ended from outside by",
  stopped: "A controller stopped it; it ended with",
  deadline: "Its time limit passed; it ended with",
  evicted: "Its supervisor was asked to end; it ended with",
};
