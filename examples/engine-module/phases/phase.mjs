import { spawn } from "node:child_process";
import { once } from "node:events";
import { setTimeout as pause } from "node:timers/promises";

/** What the three phases share. The contract that they rely on: docs/reference/sandbox-contract.md. */
const {
  EXAMPLE_STEP_MS = "0",
  HOLDFAST_CALLBACK_URL,
  HOLDFAST_NODE,
  HOLDFAST_PHASE_HELPER,
  HOLDFAST_TOKEN,
} = process.env;

export const sources = JSON.parse(process.env.HOLDFAST_SOURCES ?? "{}");
export const pins = JSON.parse(process.env.HOLDFAST_PINS ?? "{}");

/** Say what is done now: in the log, and as the phase's progress. `EXAMPLE_STEP_MS` stretches it. */
export async function step(message, percent) {
  console.log(`▸ ${message}`);
  await fetch(`${HOLDFAST_CALLBACK_URL}/progress`, {
    method: "POST",
    headers: { authorization: `Bearer ${HOLDFAST_TOKEN}`, "content-type": "application/json" },
    body: JSON.stringify({ message, percent }),
    signal: AbortSignal.timeout(5000),
  }).catch((error) => console.log(`  (progress was not reported: ${error.message})`));
  if (EXAMPLE_STEP_MS !== "0") await pause(Number(EXAMPLE_STEP_MS));
}

/** Run the helper: where the runtime says it is, else from the PATH. */
export async function holdfast(...words) {
  if (HOLDFAST_PHASE_HELPER === undefined) await run("holdfast-phase", words);
  else await run(HOLDFAST_NODE ?? process.execPath, [HOLDFAST_PHASE_HELPER, ...words]);
}

/** Run a program to its end, with its output in the log, and fail when it fails. */
export async function run(command, words, options = {}) {
  await finish(command, spawn(command, words, { stdio: ["ignore", "inherit", "inherit"], ...options }));
}

/** The same, and return its output. */
export async function output(command, words, options = {}) {
  const child = spawn(command, words, { stdio: ["ignore", "pipe", "inherit"], ...options });
  const [chunks] = await Promise.all([child.stdout.toArray(), finish(command, child)]);
  return Buffer.concat(chunks);
}

async function finish(command, child) {
  const [code, signal] = await once(child, "close");
  if (code !== 0) throw new Error(`${command} ended with ${code ?? signal}`);
}
