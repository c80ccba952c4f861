import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync } from "node:fs";
import type { ServerResponse } from "node:http";
import { join } from "node:path";
import { daemonError, Refused, sendJson, serviceError } from "./answer.ts";
import { LineTail } from "./line-tail.ts";

interface TableEntry {
  readonly child: ChildProcess;
  readonly content: string;
  readonly output: string | null;
  readonly startedAt: Date;
  running: boolean;
  exitCode: number | null;
  finishedAt: Date | null;
}

/** How a stream is cut off, as when a proxy or a node goes away in the middle. */
export type Cut = "before completion" | "after completion";

export interface StreamEnd {
  readonly cut: Cut | null;
  /** Asked before the last event is sent. False: it never is. */
  readonly ready: () => Promise<boolean>;
}

interface CommandBody {
  readonly command?: unknown;
  readonly cwd?: string;
  readonly background?: boolean;
  readonly timeout?: number;
  readonly envs?: Readonly<Record<string, string>>;
}

const tickMs = 10;
const pingMs = 3_000;
const shell = ["/bin/bash", "/bin/sh"].find((path) => existsSync(path)) ?? "/bin/sh";
const shellOptions = shell.endsWith("bash") ? ["--noprofile", "--norc", "-c"] : ["-c"];

/**
 * The daemon of one sandbox: runs commands as groups of processes of this host, keeps their output in files, and
 * their table in memory.
 */
export class ExecDaemon {
  /** Wanted in `X-EXECD-ACCESS-TOKEN`, if set. */
  token: string | null = null;
  /** Bytes that one reading of a log gives, wherever a character ends. */
  logBytesMax = 1024 * 1024;
  up = true;
  readonly #folder: string;
  readonly #env: () => Readonly<Record<string, string>>;
  #commands = new Map<string, TableEntry>();
  readonly #groups = new Set<number>();

  constructor(folder: string, env: () => Readonly<Record<string, string>>) {
    this.#folder = folder;
    this.#env = env;
  }

  get commandIds(): readonly string[] {
    return [...this.#commands.keys()];
  }

  /** Its memory goes. What it started goes on, or goes with it, as the container is made. */
  restart({ kills = false } = {}): void {
    this.#commands = new Map();
    if (kills) this.killAll();
  }

  killAll(): void {
    for (const group of this.#groups) signalGroup(group, "SIGKILL");
  }

  handle(
    request: { readonly method: string; readonly path: string; readonly query: URLSearchParams },
    token: string | undefined,
    body: string,
    response: ServerResponse,
    end: StreamEnd,
  ): void {
    if (!this.up) throw new Refused(502, "Bad Gateway");
    if (this.token !== null && token !== this.token)
      throw daemonError(401, "Unauthorized: invalid or missing header X-EXECD-ACCESS-TOKEN");
    const { method, path, query } = request;
    const status = /^\/command\/status\/([^/]+)$/.exec(path);
    const logs = /^\/command\/([^/]+)\/logs$/.exec(path);
    if (method === "POST" && path === "/command") this.#run(JSON.parse(body), response, end);
    else if (method === "DELETE" && path === "/command") this.#interrupt(query.get("id") ?? "", response);
    else if (method === "GET" && status !== null) this.#status(status[1] ?? "", response);
    else if (method === "GET" && logs !== null) this.#logs(logs[1] ?? "", query, response);
    else throw new Refused(404, "404 page not found");
  }

  #run(body: CommandBody, response: ServerResponse, end: StreamEnd): void {
    if (typeof body.command !== "string" || body.command === "") {
      throw serviceError(
        400,
        "INVALID_REQUEST_BODY",
        "invalid request, validation error command is required",
      );
    }
    const id = randomBytes(16).toString("hex");
    const folder = join(this.#folder, "execd");
    mkdirSync(folder, { recursive: true });
    const background = body.background === true;
    const paths = background
      ? [join(folder, `${id}.output`)]
      : [join(folder, `${id}.stdout`), join(folder, `${id}.stderr`)];
    const files = paths.map((path) => openSync(path, "wx", 0o600));
    const child = spawn(shell, [...shellOptions, body.command], {
      cwd: body.cwd ?? this.#folder,
      env: { ...this.#env(), ...body.envs },
      detached: true,
      stdio: ["ignore", files[0], files[1] ?? files[0]],
    });
    for (const file of files) closeSync(file);
    if (child.pid !== undefined) this.#groups.add(child.pid);
    const entry: TableEntry = {
      child,
      content: body.command,
      output: background ? (paths[0] ?? null) : null,
      startedAt: new Date(),
      running: true,
      exitCode: null,
      finishedAt: null,
    };
    this.#commands.set(id, entry);
    const timer = body.timeout === undefined ? null : setTimeout(() => kill(child), body.timeout);
    child.once("exit", (code, signal) => {
      if (timer !== null) clearTimeout(timer);
      entry.running = false;
      entry.exitCode = code ?? (signal === null ? 1 : -1);
      entry.finishedAt = new Date();
    });
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-cache" });
    this.#stream(id, entry, background ? [] : paths, response, end);
  }

  /** Bare JSON and a blank line: no `data:`. A client that leaves is noticed by nobody. */
  #stream(
    id: string,
    entry: TableEntry,
    paths: readonly string[],
    response: ServerResponse,
    end: StreamEnd,
  ): void {
    const send = (type: string, more: object = {}) =>
      response.write(`${JSON.stringify({ type, timestamp: Date.now(), ...more })}\n\n`);
    send("init", { text: id });
    if (paths.length === 0) {
      void finish(response, end, () => send("execution_complete", { execution_time: 1 }));
      return;
    }
    const tails = ["stdout", "stderr"].map(
      (type, index) => new LineTail(paths[index] ?? "", (text) => send(type, { text })),
    );
    let pinged = Date.now();
    const timer = setInterval(() => {
      const over = !entry.running;
      for (const tail of tails) tail.read(over);
      if (Date.now() - pinged >= pingMs) {
        send("ping", { text: "pong" });
        pinged = Date.now();
      }
      if (!over) return;
      clearInterval(timer);
      for (const path of paths) rmSync(path, { force: true });
      void finish(response, end, () => {
        if (entry.exitCode === 0) return send("execution_complete", { execution_time: 1 });
        const evalue = String(entry.exitCode);
        const traceback = [`exit status ${evalue}`];
        return send("error", { error: { ename: "CommandExecError", evalue, traceback } });
      });
    }, tickMs);
  }

  #interrupt(id: string, response: ServerResponse): void {
    const { child } = this.#entry(id);
    if (child.pid !== undefined) signalGroup(child.pid, "SIGTERM");
    setTimeout(() => kill(child), 3_000).unref();
    sendJson(response, 200, {});
  }

  #status(id: string, response: ServerResponse): void {
    const { content, running, exitCode, startedAt, finishedAt } = this.#entry(id);
    sendJson(response, 200, {
      id,
      content,
      running,
      exit_code: exitCode,
      error: exitCode === null || exitCode === 0 ? "" : `exit status ${exitCode}`,
      started_at: startedAt.toISOString(),
      finished_at: finishedAt?.toISOString() ?? null,
    });
  }

  /** The cursor counts bytes, though the specification says lines; what it cuts is not put together again. */
  #logs(id: string, query: URLSearchParams, response: ServerResponse): void {
    const { output } = this.#entry(id);
    if (output === null) throw serviceError(400, "INVALID_REQUEST", "command is not running in background");
    const cursor = Number(query.get("cursor") ?? 0);
    const bytes = readFileSync(output).subarray(cursor, cursor + this.logBytesMax);
    response
      .writeHead(200, {
        "content-type": "text/plain; charset=utf-8",
        "EXECD-COMMANDS-TAIL-CURSOR": String(cursor + bytes.length),
      })
      .end(bytes.toString("utf8"));
  }

  #entry(id: string): TableEntry {
    const entry = this.#commands.get(id);
    // The specification says 404.
    if (entry === undefined) throw serviceError(400, "INVALID_REQUEST", `command not found: ${id}`);
    return entry;
  }
}

async function finish(
  response: ServerResponse,
  { cut, ready }: StreamEnd,
  last: () => unknown,
): Promise<void> {
  if (!(await ready())) {
    response.socket?.destroy();
    return;
  }
  if (cut !== "before completion") last();
  if (cut === null) response.end();
  else response.socket?.destroySoon();
}

function kill(child: ChildProcess): void {
  if (child.pid !== undefined && child.exitCode === null) signalGroup(child.pid, "SIGKILL");
}

function signalGroup(group: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-group, signal);
  } catch {
    // Nothing of it is left.
  }
}
