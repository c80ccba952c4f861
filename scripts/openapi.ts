import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { apiDocument } from "./openapi/document.ts";

/** Writes docs/reference/openapi.json from the routes' own schemas (G15). */
const file = join(fileURLToPath(new URL("..", import.meta.url)), "docs/reference/openapi.json");
const text = `${JSON.stringify(await apiDocument(), null, 2)}\n`;
const before = readOrEmpty(file);
if (text !== before && process.argv.includes("--check")) {
  process.stderr.write("docs/reference/openapi.json is out of date: npm run generate\n");
  process.exitCode = 1;
} else if (text !== before) {
  writeFileSync(file, text);
  process.stdout.write("wrote docs/reference/openapi.json\n");
}

function readOrEmpty(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
