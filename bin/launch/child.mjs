import { spawn } from "node:child_process";
import { constants } from "node:os";

const preload = new URL("end-with-parent.mjs", import.meta.url).href;

/** What the preload reads: whose end it ends with, and how long after. */
const endsWithUs = (graceMs) => ({
  HOLDFAST_LAUNCHER: String(process.pid),
  HOLDFAST_LAUNCHER_GRACE_MS: String(graceMs),
});

/** How long a program that lost us may take to stop in order. */
const graceMs = 15_000;

/**
 * Environment and streams for npm, which must not outlive us: it would write while the next start, which finds
 * our lock stale, installs again. It is started by its own script, so NODE_OPTIONS carries the preload.
 */
export function npmEndsWithUs(stdio) {
  const NODE_OPTIONS = [process.env.NODE_OPTIONS, `--import=${preload}`].filter(Boolean).join(" ");
  return { env: { ...process.env, NODE_OPTIONS, ...endsWithUs(0) }, stdio: [...stdio, "ipc"] };
}

/**
 * Runs a program with our streams, passes signals on, and gives the status to exit with: its own, or 128 and
 * the number of the signal that ended it.
 */
export function runChild(node, args, { cwd, env } = {}) {
  const child = spawn(node, [`--import=${preload}`, "--disable-warning=ExperimentalWarning", ...args], {
    cwd,
    env: { ...process.env, ...env, ...endsWithUs(graceMs) },
    stdio: ["inherit", "inherit", "inherit", "ipc"],
  });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.on(signal, () => {
      // A terminal sends Ctrl-C to the child itself, and a second one may mean more than the first.
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
  }
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => resolve(code ?? 128 + (constants.signals[signal] ?? 0)));
  });
}
