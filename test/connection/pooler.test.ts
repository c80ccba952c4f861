import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { parseConfig } from "../../src/config.ts";
import { isHoldfastError } from "../../src/core/errors.ts";
import { connect, openPools } from "../../src/core/postgres/pool.ts";
import type { ConnectionSettings } from "../../src/core/postgres/settings.ts";
import { testDatabase, withClient } from "../support/database.ts";
import { findPgbouncer, startPgbouncer } from "../support/pgbouncer.ts";
import { shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

const program = findPgbouncer();
const manual = new URL("../../docs/operations.md", import.meta.url);
const roles = ["gateway", "controller", "worker", "producer", "dispatcher", "operator", "retention"] as const;
const skip = program === null ? "pgbouncer is not installed here" : false;

/** The logins of the manual, made as it says, under a prefix of this file's own. */
const prefix = `pool${process.pid}`;

async function pooled(
  t: { readonly after: (hook: () => Promise<void>) => void },
  database: { readonly superuser: ConnectionSettings; readonly app: ConnectionSettings },
): Promise<ConnectionSettings> {
  const text = await readFile(manual, "utf8");
  const [sql] = /do \$logins\$[\s\S]*?\$logins\$;/.exec(text) ?? [];
  assert.ok(sql !== undefined && program !== null);
  const made = sql.replaceAll("hf_%", `${prefix}_%`).replace("PASSWORD", database.app.password);
  await withClient(database.superuser, (client) =>
    client.query(made).catch((error: unknown) => {
      // Roles are the whole server's: another test of this file has made them.
      if (!(error instanceof Error && "code" in error && error.code === "42710")) throw error;
    }),
  );
  const address = await startPgbouncer(
    t,
    program,
    database.app,
    roles.map((role) => `${prefix}_${role}`),
  );
  return { ...address, user: prefix, pooler: "transaction", direct: database.app };
}

test("G13: behind a pooler in transaction mode each role has the rights and limits of a direct connection", {
  skip,
}, async (t) => {
  const database = await testDatabase(t);
  const settings = await pooled(t, database);
  const state = `select current_user::text as role, current_setting('search_path') as path, current_setting('statement_timeout') as statement,
    current_setting('lock_timeout') as lock, current_setting('transaction_timeout') as whole,
    current_setting('idle_in_transaction_session_timeout') as idle, current_setting('timezone') as zone,
    current_setting('transaction_isolation') as isolation`;
  for (const role of roles) {
    const seen: unknown[] = [];
    for (const way of [settings, database.app]) {
      const pools = openPools({ settings: way, name: "test" });
      seen.push((await pools.of(role).query(state)).rows);
      await pools.close();
    }
    const words = (value: unknown) => JSON.stringify(value).replaceAll(" ", "");
    assert.equal(words(seen[0]), words(seen[1]), role);
  }
});

test("G13: jobs run through a pooler in transaction mode, while the doorbell and renewals go past it", {
  skip,
}, async (t) => {
  const stack = await testStack(t);
  const settings = await pooled(t, stack.database);
  const foundation = await stack.foundation("all", { settings });
  await stack.controller(foundation);
  const jobs = await Promise.all(
    ["one", "two", "three"].map((name) => stack.submit(foundation, shellJob(name, [{ run: "echo hello" }]))),
  );
  await until(
    "the jobs have ended",
    async () => {
      const rows = await stack.rows<{ state: string }>("select state from holdfast.jobs");
      return rows.length === jobs.length && rows.every(({ state }) => state === "succeeded");
    },
    60_000,
  );
  const connections = await stack.rows<{ login: string; listens: boolean }>(
    `select distinct usename as login, bool_or(query ilike 'listen%') over (partition by usename) as listens
     from pg_stat_activity where datname = current_database() and application_name like 'holdfast/all%'`,
  );
  const logins = connections.map(({ login }) => login);
  assert.ok(logins.includes(`${prefix}_controller`) && logins.includes("holdfast_app"), logins.join(", "));
  assert.ok(connections.every(({ login, listens }) => !listens || login === "holdfast_app"));
});

test("G13: a pooler without the direct connection that LISTEN and locks need is refused in words", async () => {
  const database = parseConfig({
    HOLDFAST_DATABASE_URL: "postgres://hf@127.0.0.1:6432/store?pooler=transaction",
  }).database;
  assert.ok(database !== null);
  await assert.rejects(connect(database, "dispatcher", "test"), (error) => {
    assert.ok(isHoldfastError(error, "invalid_configuration"), String(error));
    assert.match(error.detail, /HOLDFAST_DATABASE_DIRECT_URL/);
    return true;
  });
});
