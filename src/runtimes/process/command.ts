import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type Belonging, endCarriers, signalCarriers } from "./carriers.ts";
import { createSync } from "./durable.ts";
import { toJson } from "./fields.ts";
import { files, sandboxMarker } from "./layout.ts";
import { LogWriter } from "./log-writer.ts";
import { readStartTimeSync } from "./process-table.ts";
import { type CommandRecord, now, type RequestRecord } from "./records.ts";
import { Timer } from "./timer.ts";

const killRoundMilliseconds = 5_000;
/** How long a pipe may stay open when all that belongs has ended: somebody unknown holds its other end. */
const pipeMilliseconds = 2_000;

export type CommandEnd =
  | { readonly kind: "failed"; readonly message: string }
  | {
      readonly kind: "ended";
      readonly exitCode: number | null;
      readonly signal: string | null;
      /** `end` was called before it ended. */
      readonly asked: boolean;
      /** Bytes of output beyond what is kept. */
      readonly dropped: bigint;
    };

/**
 * The command as a process: its own session and group, its output on disk, and its end, which is reported
 * only when no process of it is left.
 */
export class Command {
  readonly #child: ChildProcess;
  readonly #log: LogWriter;
  readonly #uid: string;
  readonly #killTimer = new Timer();
  readonly #onEnd: (end: CommandEnd) => void;
  #exited = false;
  #asked = false;

  constructor(
    path: string,
    request: RequestRecord,
    env: Readonly<Record<string, string>>,
    onEnd: (end: CommandEnd) => void,
  ) {
    this.#uid = request.uid;
    this.#onEnd = onEnd;
    this.#log = new LogWriter(join(path, files.output), request.settings.logBytesMax);
    const [program = "", ...args] = request.spec.command;
    const child = spawn(program, args, {
      cwd: join(path, files.work),
      env,
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
    });
    this.#child = child;
    child.on("error", (error) => this.#failed(error));
    child.stdout.on("data", (chunk: Buffer) => this.#log.write("stdout", chunk));
    child.stderr.on("data", (chunk: Buffer) => this.#log.write("stderr", chunk));
    const closed = once(child, "close");
    // A failed start emits `error` first, which this promise would throw again.
    closed.catch(() => undefined);
    child.once("exit", (exitCode, signal) => void this.#finish(exitCode, signal, closed));
    if (child.pid !== undefined) recordCommand(path, child.pid);
  }

  /** TERM now, KILL after the grace. `CONT`, because a stopped process doesn't see a TERM. */
  end(graceMilliseconds: number): void {
    this.#asked = true;
    if (this.#exited) return;
    this.#killTimer.set(graceMilliseconds, () => void this.#kill());
    void signalCarriers(this.#belonging(), "SIGTERM").then(() =>
      signalCarriers(this.#belonging(), "SIGCONT"),
    );
  }

  /** The group at once, for a supervisor that must not go on. */
  killNow(): void {
    if (this.#child.pid === undefined || this.#exited) return;
    try {
      process.kill(-this.#child.pid, "SIGKILL");
    } catch {
      // It has ended meanwhile.
    }
  }

  async #kill(): Promise<void> {
    while (!this.#exited) await endCarriers(this.#belonging(), killRoundMilliseconds);
  }

  async #finish(exitCode: number | null, signal: string | null, closed: Promise<unknown>): Promise<void> {
    const asked = this.#asked;
    this.#exited = true;
    this.#killTimer.clear();
    // Not reported as stopped before it is true, however long that takes.
    while (!(await endCarriers(this.#belonging(), killRoundMilliseconds))) {
      process.stderr.write("processes of the sandbox are left and can't be killed\n");
    }
    await Promise.race([closed, delay(pipeMilliseconds, undefined, { ref: false })]);
    this.#child.stdout?.destroy();
    this.#child.stderr?.destroy();
    this.#log.close();
    this.#onEnd({ kind: "ended", exitCode, signal, asked, dropped: this.#log.dropped });
  }

  #failed(error: Error): void {
    if (this.#child.pid !== undefined) return;
    this.#log.close();
    this.#onEnd({ kind: "failed", message: error.message });
  }

  #belonging(): Belonging {
    return { marks: [sandboxMarker(this.#uid)], session: this.#child.pid ?? null, except: process.pid };
  }
}

/** In the step that spawned it. On macOS without its start time, so only the marker tells later what is ours. */
function recordCommand(path: string, pid: number): void {
  const record: CommandRecord = { pid, startTime: readStartTimeSync(pid), startedAt: now() };
  try {
    createSync(join(path, files.command), toJson(record));
  } catch (error) {
    // Only a look after our own death would need it, and that finds the marker too.
    process.stderr.write(`the command's pid can't be recorded: ${String(error)}\n`);
  }
}
