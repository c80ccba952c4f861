import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ContainerLog } from "./container-log.ts";
import type { ContainerObject } from "./pod-object.ts";

export interface ContainerEnd {
  readonly exitCode: number;
  readonly reason: "Completed" | "Error" | "StartError";
  readonly message?: string;
  readonly startedAt: number | null;
  readonly finishedAt: number;
}

const signalNumbers: Readonly<Record<string, number>> = { SIGHUP: 1, SIGINT: 2, SIGKILL: 9, SIGTERM: 15 };
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/**
 * A container as a process group of this host, without isolation, image or mounts: the pod's folders are fresh
 * ones here. Unlike PID 1 of a container a program without a handler does end by SIGTERM.
 */
export class LocalContainer {
  readonly id = `containerd://${randomBytes(32).toString("hex")}`;
  readonly log = new ContainerLog();
  readonly started: Promise<boolean>;
  readonly ended: Promise<ContainerEnd>;
  #child: ChildProcess;

  constructor(container: ContainerObject, environment: Readonly<Record<string, string>>) {
    const folder = mkdtempSync(join(tmpdir(), "hf-pod-"));
    const expand = expander(environment);
    const [file = "", ...args] = (container.command ?? []).map(expand);
    const env = { ...environment, PATH: path, HOME: folder, TMPDIR: folder };
    this.#child = spawn(file, args, { cwd: folder, env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    this.#child.stdout?.on("data", (bytes: Buffer) => this.log.append("stdout", bytes));
    this.#child.stderr?.on("data", (bytes: Buffer) => this.log.append("stderr", bytes));
    const startedAt = Date.now();
    this.started = new Promise((resolve) => {
      this.#child.once("spawn", () => resolve(true));
      this.#child.once("error", () => resolve(false));
    });
    this.ended = new Promise((resolve) => {
      this.#child.once("error", () => {
        this.log.close();
        const words = `unable to start container process: exec: "${file}": stat ${file}: no such file or directory`;
        const message = `failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: ${words}`;
        resolve({ exitCode: 128, reason: "StartError", message, startedAt: null, finishedAt: Date.now() });
      });
      // What it left behind goes with it, as with the last process of a container.
      this.#child.once("exit", () => this.#signalAll("SIGKILL"));
      this.#child.once("close", (code, signal) => {
        this.log.close();
        const exitCode = code ?? 128 + (signalNumbers[signal ?? ""] ?? 0);
        const reason = exitCode === 0 ? "Completed" : "Error";
        resolve({ exitCode, reason, startedAt, finishedAt: Date.now() });
      });
    });
    void this.ended.finally(() => rmSync(folder, { recursive: true, force: true }));
  }

  /** To the first process only, as the container runtime does it. */
  terminate(): void {
    this.#child.kill("SIGTERM");
  }

  kill(): void {
    this.#signalAll("SIGKILL");
  }

  #signalAll(signal: NodeJS.Signals): void {
    const { pid } = this.#child;
    if (pid === undefined) return;
    try {
      process.kill(-pid, signal);
    } catch {
      // Nothing of it is left.
    }
  }
}

/** The kubelet's expansion of `$(NAME)`, and of `$$` to `$`, in commands and values. */
export function expander(environment: Readonly<Record<string, string>>): (text: string) => string {
  return (text) =>
    text.replaceAll(/\$(\$|\(([^)]*)\))/g, (whole, dollar: string, name: string | undefined) => {
      if (dollar === "$") return "$";
      return name !== undefined && Object.hasOwn(environment, name) ? (environment[name] ?? "") : whole;
    });
}
