import assert from "node:assert/strict";
import { chmod, mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import pc from "picocolors";
import { withClient } from "../../test/support/database.ts";
import { parseConfig } from "../config.ts";
import { isHoldfastError } from "../core/errors.ts";
import { startPostgres } from "../dev/postgres/server.ts";
import { runningStore } from "../dev/running.ts";
import { prepareStore } from "../dev/store.ts";
import { createProgram } from "./program.ts";
import { visible } from "./visible.ts";

/** Run one line in a directory, and give what it printed. */
async function run(directory: string, environment: Readonly<Record<string, string>>, line: string) {
  let printed = "";
  const colors = pc.createColors(false);
  const out = (text: string) => {
    printed += text;
    return Promise.resolve();
  };
  const screen = { live: false, columns: 80, rows: 24, colors, errorColors: colors, foreign: visible };
  const context = {
    config: parseConfig(environment),
    terminal: { ...screen, out, err: out },
    version: "0.0.0",
    directory,
    now: () => Date.now(),
  };
  const program = createProgram(context, null);
  program.exitOverride();
  await program.parseAsync(line.split(" "), { from: "user" });
  return printed;
}

const refusedWith = (code: Parameters<typeof isHoldfastError>[1], words: RegExp) => (error: unknown) => {
  assert(isHoldfastError(error, code), String(error));
  assert.match(error.detail, words);
  return true;
};

test("M5: drain, resume, token and what looks at the schema find the development store of their checkout", async (t) => {
  const checkout = await mkdtemp(join(tmpdir(), "hf-checkout-"));
  const home = join(checkout, ".holdfast");
  const below = join(checkout, "src", "deep");
  await mkdir(below, { recursive: true });
  await mkdir(home, { mode: 0o700 });
  for (const line of ["schema status", "drain", "resume jobs", "token list --tenant acme"]) {
    await assert.rejects(
      run(below, {}, line),
      refusedWith(
        "invalid_configuration",
        /^no database is named, and no development store runs in this checkout \(.*\): set HOLDFAST_DATABASE_URL or give --database-url$/,
      ),
    );
  }

  const server = await startPostgres({ directory: join(home, "postgres"), settings: { fsync: "off" } });
  t.after(async () => {
    await server.stop();
    await rm(checkout, { recursive: true, force: true, maxRetries: 5 });
  });
  await withClient(server.connection, (client) => client.query("create database holdfast"));
  assert.match(await run(below, {}, "schema status"), /^schema +none$/m);
  await assert.rejects(
    run(below, {}, "drain"),
    refusedWith("schema_missing", /^role "holdfast_operator" does not exist: `holdfast schema roles` makes/),
  );

  await prepareStore(server.connection, "here", () => undefined);
  assert.match(await run(below, {}, "schema status"), /^installation +here$/m);
  assert.equal(await run(below, {}, "drain"), "Everything is admitted.\n");
  assert.match(await run(below, {}, "drain jobs --reason tonight"), /^jobs +0 /m);
  assert.match(await run(below, {}, "drain -o yaml"), /^---\ndrains:\n {2}- kind: jobs$/m);
  assert.equal(await run(below, {}, "resume jobs"), "Everything is admitted.\n");
  const elsewhere = { HOLDFAST_INSTALLATION: "elsewhere" };
  for (const line of ["schema verify", "drain", "resume all"]) {
    await assert.rejects(
      run(below, elsewhere, line),
      refusedWith("installation_mismatch", /^the store belongs to here, this process to elsewhere$/),
    );
  }

  // What changes the schema is told which store; one that others could have put there is not looked at.
  await assert.rejects(
    run(below, {}, "schema apply"),
    refusedWith("invalid_configuration", /brought up to date by `.*dev` alone: set HOLDFAST_DATABASE_URL/),
  );
  await chmod(home, 0o755);
  assert.equal(runningStore(below), null);
});
