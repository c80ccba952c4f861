import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { fillGuarantees, testTitles } from "./guarantees/titles.ts";

/** Fill the column "shown by" of docs/guarantees.md from the titles of the tests. */
const root = fileURLToPath(new URL("..", import.meta.url));
const file = join(root, "docs/guarantees.md");
const before = readFileSync(file, "utf8");
const { text } = fillGuarantees(before, testTitles(root));
if (text !== before && process.argv.includes("--check")) {
  process.stderr.write("docs/guarantees.md is out of date: npm run generate\n");
  process.exitCode = 1;
} else if (text !== before) {
  writeFileSync(file, text);
  process.stdout.write("wrote docs/guarantees.md\n");
}
