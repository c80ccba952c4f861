/**
 * `npm run generate`: write `x.sql.ts` beside each `x.sql` below `src`, typed by a PostgreSQL that has the
 * migrated schema, and what each migration makes of the schema into `migrations/catalogue.json`. `--check` writes nothing and fails when a file would change.
 */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { Client } from "pg";
import { catalogueFile } from "../src/core/schema/catalogue.ts";
import { readMigrations, readRoles } from "../src/core/schema/migrations.ts";
import { readOnlineSteps } from "../src/core/schema/online.ts";
import { applyRoles } from "../src/core/schema/roles.ts";
import { startPostgres } from "../src/dev/postgres/server.ts";
import { populateStore } from "../test/migrations/populate.ts";
import { recordCatalogue } from "./catalogue/record.ts";
import { rolesDocument } from "./roles/document.ts";
import { probeRole, type RoleRights, runtimeRoles } from "./roles/probe.ts";
import { drift, generate } from "./statements/generate.ts";

const root = resolve(import.meta.dirname, "..");
const migrations = join(root, "migrations");
const { values: flags } = parseArgs({ options: { check: { type: "boolean", default: false } } });

const directory = await mkdtemp(join(tmpdir(), "holdfast-generate-"));
const postgres = await startPostgres({ directory, throwaway: true, settings: { fsync: "off" } });
try {
  const client = new Client(postgres.connection);
  // When a statement fails the server stops under it: that would hide why.
  client.on("error", () => undefined);
  await client.connect();
  process.exitCode = await run(client);
  await client.end();
} finally {
  await postgres.stop();
}

async function run(client: Client): Promise<number> {
  await applyRoles(client, await readRoles(migrations));
  const [files, steps] = [await readMigrations(migrations), await readOnlineSteps(migrations)];
  const catalogue = await recordCatalogue(client, files, steps);
  // As every connection of a process has it: a statement names the schema of all that it uses.
  await client.query("set search_path = pg_catalog, pg_temp");
  const { modules, problems } = await generate(root, client);
  for (const problem of problems) console.error(problem);
  if (problems.length > 0) return 1;

  const differing = await drift(root, modules);
  const path = join(migrations, catalogueFile);
  const rolesPath = join(root, "docs/reference/roles.md");
  const roles = await rolesText(client);
  const rolesStale = (await readFile(rolesPath, "utf8").catch(() => "")) !== roles;
  const stale = (await readFile(path, "utf8").catch(() => "")) !== catalogue;
  if (flags.check) {
    for (const path of differing) console.error(`${path} is not what its SQL says: npm run generate`);
    if (stale) console.error(`${path} is not what the migrations make: npm run generate`);
    if (rolesStale) console.error(`${rolesPath} is not what the roles can do: npm run generate`);
    return differing.length === 0 && !stale && !rolesStale ? 0 : 1;
  }
  if (stale) await writeFile(path, catalogue);
  if (rolesStale) await writeFile(rolesPath, roles);
  for (const path of differing) {
    const module = modules.find((candidate) => candidate.path === path);
    // A module that no .sql file stands behind any more is removed.
    await (module === undefined ? rm(join(root, path)) : writeFile(join(root, path), module.text));
    console.log(`${module === undefined ? "removed" : "wrote"} ${path}`);
  }
  return 0;
}

/** What each role can do, tried on rows of two tenants in every table. */
async function rolesText(client: Client): Promise<string> {
  for (const tenant of ["acme", "other"]) await populateStore(client, tenant);
  const all: RoleRights[] = [];
  for (const role of runtimeRoles) all.push(await probeRole(client, role));
  return rolesDocument(all);
}
