import { cp, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { recordCatalogue } from "../../scripts/catalogue/record.ts";
import { catalogueFile, readCatalogue } from "../../src/core/schema/catalogue.ts";
import { applySchema } from "../../src/core/schema/migrate.ts";
import { readMigrations, releaseMigrations } from "../../src/core/schema/migrations.ts";
import { readOnlineSteps, runOnlineSteps } from "../../src/core/schema/online.ts";
import { verifySchema } from "../../src/core/schema/verify.ts";
import { emptyDatabase, type Scope, type TestDatabase, withClient } from "./database.ts";

/** A folder of migrations as a release ships it: ours with files of a test's own, and the catalogue of all of them. */
export type OwnRelease = Awaited<ReturnType<typeof ownRelease>>;

export async function ownRelease(scope: Scope, files: Readonly<Record<string, string>>) {
  const directory = await mkdtemp(join(tmpdir(), "holdfast-release-"));
  scope.after(() => void rm(directory, { recursive: true, force: true }));
  await cp(await releaseMigrations(), directory, { recursive: true });
  await mkdir(join(directory, "online"), { recursive: true });
  for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text);
  const migrations = await readMigrations(directory);
  // As `npm run generate` does.
  const { superuser } = await emptyDatabase(scope);
  const written = await readOnlineSteps(directory);
  const catalogue = await withClient(superuser, (client) => recordCatalogue(client, migrations, written));
  await writeFile(join(directory, catalogueFile), catalogue);
  const effects = await readCatalogue(directory);
  const steps = await readOnlineSteps(directory);
  return {
    directory,
    migrations,
    effects,
    steps,
    apply: ({ owner }: TestDatabase) =>
      withClient(owner, (client) => applySchema(client, { migrations, effects, steps })),
    applyOnline: ({ owner }: TestDatabase) =>
      withClient(owner, (client) => runOnlineSteps(client, { steps, version: migrations.length })),
    verify: (database: TestDatabase) =>
      withClient(database.superuser, (client) => verifySchema(client, migrations, effects, steps)),
  };
}
