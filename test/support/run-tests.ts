/**
 * `npm test [FILTER …] [--node-option …]`: starts the one PostgreSQL that all test files share, runs those
 * whose path contains a filter (all without one), and ends with the runner's totals.
 */
import { globSync } from "node:fs";
import { availableParallelism } from "node:os";
import { runChild } from "../../bin/launch/child.mjs";
import { sharedServerVariable, startThrowawayPostgres } from "./postgres.ts";

/** Of one test, and of one file: nothing hangs. */
const timeoutMs = 300_000;

const args = process.argv.slice(2);
const options = args.filter((arg) => arg.startsWith("-"));
const filters = args.filter((arg) => !arg.startsWith("-"));
const files = globSync(["src/**/*.test.ts", "test/**/*.test.ts", "scripts/**/*.test.ts"])
  .map((path) => path.replaceAll("\\", "/"))
  .filter((path) => filters.length === 0 || filters.some((filter) => path.includes(filter)))
  .sort();

if (files.length === 0) {
  console.error(`No test file matches ${filters.join(", ")}`);
  process.exit(1);
}

const postgres = await startThrowawayPostgres();
process.exitCode = await runFiles(JSON.stringify(postgres.connection));
await postgres.stop();

function runFiles(server: string): Promise<number> {
  const flags = [
    "--test",
    "--test-reporter=spec",
    `--test-concurrency=${Math.max(2, availableParallelism())}`,
    `--test-timeout=${timeoutMs}`,
  ];
  const env = { [sharedServerVariable]: server };
  return runChild(process.execPath, [...flags, ...options, ...files], { env });
}
