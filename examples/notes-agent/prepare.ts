import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";

/** This folder. */
export const notesFolder = fileURLToPath(new URL(".", import.meta.url)).replace(/[\\/]$/, "");

/** The agent file as a plain object, with its placeholder filled in. `stepMs` stretches each step, for demonstrations. */
export async function notesAgent({
  stepMs = 0,
}: {
  readonly stepMs?: number;
} = {}): Promise<Record<string, unknown>> {
  const agent = parse(await readFile(join(notesFolder, "agent.yaml"), "utf8")) as {
    readonly spec: { readonly command: readonly string[] };
  };
  // Filled in after parsing, so that no folder's name can change what the file means.
  const command = agent.spec.command.map((word) => word.replaceAll("${example}", notesFolder));
  const env = stepMs > 0 ? { env: { NOTES_STEP_MS: String(stepMs) } } : {};
  return { ...agent, spec: { ...agent.spec, command, ...env } };
}
