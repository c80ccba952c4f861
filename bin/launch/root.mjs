import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The checkout, or the installed package. */
export const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");

/** Runs the body and exits with the status it gives; an error is one line, without a stack. */
export async function main(body) {
  try {
    process.exitCode = await body();
  } catch (error) {
    process.stderr.write(`holdfast: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  }
  process.exit();
}
