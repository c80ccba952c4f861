import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { Socket } from "node:net";
import type { ServerAccount } from "./account.ts";

/** How a server ends when its owner is gone: `INT` checkpoints first, `QUIT` does not. */
export type OrphanSignal = "INT" | "QUIT";

export interface GuardOptions {
  readonly program: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly account: ServerAccount | null;
  readonly orphanSignal: OrphanSignal;
  /** Removed with everything in it when the owner died, so that a throwaway server leaves nothing behind. */
  readonly removeWhenOrphaned: string | null;
  /** File descriptors: where the program's output goes, and files that it reads as 4, 5, …. */
  readonly output: number;
  readonly files?: readonly number[];
  /** Whether the kernel signals the program too when its shell dies; unless said, where setpriv can do it. */
  readonly deathSignal?: boolean;
  /** All that the program finds in its environment, beside a search path: none of ours is meant for it. */
  readonly environment?: Readonly<Record<string, string>>;
}

export interface Guarded {
  readonly ended: Promise<number | null>;
  /** SIGINT and SIGQUIT are passed to the program. */
  readonly signal: (signal: "SIGINT" | "SIGQUIT") => void;
  readonly running: () => boolean;
  /** Whether our process stays for it. Without, both end once we have nothing more to do. */
  readonly keepUsRunning: (yes: boolean) => void;
}

/**
 * A small shell between us and the program. It reads a pipe that only we hold: when we die, even by SIGKILL,
 * the pipe ends and the shell ends the program, repeating the signal until it is gone (a shell starts its
 * background programs with SIGINT ignored, so one that comes early is lost), and with SIGKILL after 30 s.
 * It is the program's parent, so the pid it signals is never a reused one. Where the shell itself is killed,
 * setpriv's parent-death signal ends the program, if the machine has it, and we end it otherwise.
 */
const guardScript = `
signal=$1 folder=$2; shift 2
"$@" 3<&- &
server=$!
orphaned=
trap 'kill -INT "$server" 2>/dev/null' INT TERM HUP
trap 'kill -QUIT "$server" 2>/dev/null' QUIT
trap 'orphaned=yes' USR1
(
  trap '' INT TERM HUP QUIT USR1
  while read -r _; do :; done
  kill -USR1 $$ 2>/dev/null
  tries=0
  while kill -s "$signal" "$server" 2>/dev/null; do
    sleep 0.1 2>/dev/null || sleep 1
    tries=$((tries + 1))
    if [ "$tries" -ge 300 ]; then signal=KILL; fi
  done
) <&3 >/dev/null 2>&1 &
watcher=$!
exec 3<&-
status=0
while kill -0 "$server" 2>/dev/null; do wait "$server"; status=$?; done
kill -KILL "$watcher" 2>/dev/null
if [ -n "$orphaned" ] && [ -n "$folder" ]; then cd / && rm -rf -- "$folder"; fi
exit "$status"
`;

/** Where the guard finds `sleep`, `rm` and `setpriv`. */
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin";

export function startGuarded(options: GuardOptions): Guarded {
  const { program, args, cwd, account, orphanSignal } = options;
  const stdio = ["ignore", options.output, options.output, "pipe", ...(options.files ?? [])] as const;
  if (process.platform === "win32") {
    // Windows ends a child with its parent, because libuv puts it in a job object.
    return guarded(spawn(program, args, { cwd, stdio: [...stdio], windowsHide: true }));
  }
  const death = (options.deathSignal ?? hasDeathSignal()) ? ["setpriv", `--pdeathsig=${orphanSignal}`] : [];
  const command = [...death, program, ...args];
  const env = { PATH: searchPath, ...options.environment };
  const script = ["-c", guardScript, "holdfast-guard", orphanSignal, options.removeWhenOrphaned ?? ""];
  // Detached: a Ctrl-C in the terminal is for us, who stop the server after its clients.
  return guarded(
    spawn("/bin/sh", [...script, ...command], { cwd, env, detached: true, stdio: [...stdio], ...account }),
  );
}

function guarded(child: ChildProcess): Guarded {
  const pipe = child.stdio[3];
  const ended = once(child, "exit").then(
    ([code]: unknown[]) => (typeof code === "number" ? code : null),
    () => null,
  );
  if (pipe instanceof Socket) {
    pipe.on("error", () => undefined).unref();
    // The shell's watcher outlives a shell that was killed; it sees the pipe end and finishes the work.
    void ended.then(() => pipe.destroy());
  }
  return {
    ended,
    signal: (signal) => void child.kill(signal),
    running: () => child.exitCode === null && child.signalCode === null,
    keepUsRunning: (yes) => (yes ? child.ref() : child.unref()),
  };
}

let deathSignals: boolean | undefined;

/** A busybox setpriv, and an old one, have no `--pdeathsig`; then the pipe alone has to do. */
function hasDeathSignal(): boolean {
  const env = { PATH: searchPath };
  deathSignals ??=
    process.platform === "linux" && spawnSync("setpriv", ["--pdeathsig=INT", "true"], { env }).status === 0;
  return deathSignals;
}
