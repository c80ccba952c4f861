import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ExecDaemon } from "./exec-daemon.ts";

export interface CreateInput {
  readonly image: unknown;
  readonly entrypoint: readonly string[];
  readonly timeout: number | null;
  readonly env: Readonly<Record<string, string>>;
  readonly metadata: Record<string, string>;
}

const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** One sandbox: processes of this host with a folder of their own, without isolation or image. */
export class Box {
  readonly id = randomUUID();
  readonly createdAt: number;
  readonly input: CreateInput;
  readonly daemon: ExecDaemon;
  metadata: Record<string, string>;
  expiresAt: number | null;
  state = "Running";
  /** False: it exists, and no look shows it yet. */
  visible = true;
  /** False: the service has forgotten it, whatever still runs. */
  known = true;
  readonly #folder = mkdtempSync(join(tmpdir(), "hf-box-"));
  readonly #extra: Readonly<Record<string, string>>;

  constructor(input: CreateInput, createdAt: number, extra: Readonly<Record<string, string>>) {
    this.input = input;
    this.createdAt = createdAt;
    this.metadata = { ...input.metadata };
    this.expiresAt = input.timeout === null ? null : createdAt + input.timeout * 1000;
    this.#extra = extra;
    this.daemon = new ExecDaemon(this.#folder, () => this.#env());
    mkdirSync(join(this.#folder, "tmp"));
  }

  /** The container starts anew in the same sandbox: nothing of it runs, and its disk is empty. */
  loseDisk(): void {
    this.#killAll();
    this.daemon.restart({ kills: true });
    rmSync(this.#folder, { recursive: true, force: true });
    mkdirSync(join(this.#folder, "tmp"), { recursive: true });
  }

  /** The pod is gone at last. */
  destroy(): void {
    this.known = false;
    this.daemon.killAll();
    this.daemon.up = false;
    this.#killAll();
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  shown(): object {
    return {
      id: this.id,
      status: {
        state: this.state,
        reason: "",
        message: "",
        // The creation's time, whatever happened since.
        lastTransitionAt: new Date(this.createdAt).toISOString(),
      },
      metadata: this.metadata,
      expiresAt: this.expiresAt === null ? null : new Date(this.expiresAt).toISOString(),
      createdAt: new Date(this.createdAt).toISOString(),
      entrypoint: this.input.entrypoint,
    };
  }

  #env(): Readonly<Record<string, string>> {
    const base = { PATH: path, HOME: this.#folder, TMPDIR: join(this.#folder, "tmp"), LANG: "C.UTF-8" };
    return { ...base, ...this.#extra, ...this.input.env };
  }

  /** What left its group goes too, as everything in a container does. */
  #killAll(): void {
    const script = `for f in $(grep -ls 'HOLDFAST_SANDBOX=${this.id}' /proc/[0-9]*/environ 2>/dev/null); do f=\${f#/proc/}; kill -KILL "\${f%/environ}" 2>/dev/null; done; :`;
    execFileSync("/bin/sh", ["-c", script]);
  }
}
