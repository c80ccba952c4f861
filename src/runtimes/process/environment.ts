import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { readSecrets } from "../../sandboxes/secret-files.ts";
import { files, sandboxMarker } from "./layout.ts";
import type { RequestRecord } from "./records.ts";

/**
 * The command's whole environment: a minimal base, then the spec, the private part, the secrets, and last
 * the marker, which nothing can replace. Nothing of the controller's environment is in it, so a database
 * password that the controller was given can't be read from here.
 */
export function commandEnvironment(
  folderPath: string,
  request: RequestRecord,
  privateEnv: Readonly<Record<string, string>>,
): Record<string, string> {
  const { spec, settings, uid } = request;
  const [markerName, markerValue] = sandboxMarker(uid).split("=", 2);
  return {
    // First, so that `holdfast-agent` is this release's, as it is in images.
    PATH: `${join(dirname(phaseHelper), "sandbox")}:${settings.searchPath}`,
    HOME: join(folderPath, files.work),
    TMPDIR: join(folderPath, files.temporary),
    LANG: "C.UTF-8",
    HOLDFAST_NODE: process.execPath,
    HOLDFAST_PHASE_HELPER: phaseHelper,
    ...spec.env,
    ...privateEnv,
    ...readSecrets(settings.secretsDirectory, spec.secrets),
    [String(markerName)]: String(markerValue),
  };
}

/** The sandbox's side of the callback as a program: below the nearest folder that has it, bundled or not. */
const phaseHelper = findPhaseHelper();

function findPhaseHelper(): string {
  for (let at = import.meta.dirname; at !== dirname(at); at = dirname(at)) {
    const program = join(at, "bin", "holdfast-phase.mjs");
    if (existsSync(program)) return program;
  }
  throw new Error("this installation has no bin/holdfast-phase.mjs");
}
