import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { processRuntime } from "../runtimes/process/process-runtime.ts";
import { openHome } from "./home.ts";

/** Larger than any epoch that a store gives: whoever holds the sandbox, it ends. */
const lastEpoch = 2n ** 62n;

/** Empty a development store: end what still runs of it, then remove everything in its folder but the lock and the secrets. */
export async function resetHome(directory: string, announce: (line: string) => void): Promise<void> {
  if (!existsSync(directory)) return;
  const home = await openHome(directory);
  try {
    await endSandboxes(home.path("sandboxes"), home.state().installation, home.path("secrets"));
    for (const name of ["postgres", "blobs", "sandboxes", "artifacts", "example", "state.json", "dev.json"]) {
      await rm(home.path(name), { recursive: true, force: true, maxRetries: 5 });
    }
    announce(`jobs, output and artifacts in ${directory} are removed; secrets stay`);
  } finally {
    home.release();
  }
}

async function endSandboxes(
  directory: string,
  installation: string,
  secretsDirectory: string,
): Promise<void> {
  if (!existsSync(directory)) return;
  const runtime = processRuntime({ directory, installation, secretsDirectory });
  const signal = AbortSignal.timeout(60_000);
  for await (const { name, uid } of runtime.list(signal)) {
    await runtime.stop({ name, uid }, lastEpoch, signal);
    for (;;) {
      const seen = await runtime.observe({ name, uid }, signal);
      if (seen.state === "stopped" || seen.state === "absent") break;
      await runtime.changed({ name, uid }, signal);
    }
  }
}
