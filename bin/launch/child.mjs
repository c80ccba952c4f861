import { spawn } from "node:child_process";
import { constants } from "node:os";

const preload = new URL("end-with-parent.mjs", import.meta.url).href;

/**
 * Environment and streams for a Node program that must not outlive us. Without `--import` in its arguments,
 * because npm is started by its own script, NODE_OPTIONS carries the preload.
 */
export function endsWithUs(stdio) {
  const options = [process.env.NODE_OPTIONS, `--import=${preload}`].filter(Boolean).join(" ");
  return {
    env: { ...process.env, NODE_OPTIONS: options, HOLDFAST_LAUNCHER: String(process.pid) },
    stdio: [...stdio, "ipc"],
  };
}

/**
 * Runs a program with our streams, passes signals on, and gives the status to exit with: its own, or 128 and
 * the number of the signal that ended it.
 */
export function runChild(node, args, { cwd, env } = {}) {
  const child = spawn(node, [`--import=${preload}`, "--disable-warning=ExperimentalWarning", ...args], {
    cwd,
    env: { ...process.env, ...env, HOLDFAST_LAUNCHER: String(process.pid) },
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
