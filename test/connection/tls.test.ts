import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { after, describe, test } from "node:test";
import { postgresUrl } from "../../src/config/postgres-url.ts";
import { isHoldfastError } from "../../src/core/errors.ts";
import { connectDirect } from "../../src/core/postgres/direct.ts";
import { hasOpenssl, startTlsPostgres, type TlsPostgres } from "../support/tls-postgres.ts";

const skip = hasOpenssl() ? false : "openssl is not installed here";

describe("G13: the connection to the database", { skip }, () => {
  let started: Promise<TlsPostgres> | undefined;
  const hooks: (() => Promise<void>)[] = [];
  after(async () => {
    for (const hook of hooks.toReversed()) await hook();
  });
  const server = () => (started ??= startTlsPostgres({ after: (hook) => hooks.push(hook) }));

  /** Whether the connection is encrypted, as the server sees it; or why there is none. */
  async function tried(host: string, query: string): Promise<boolean | string> {
    const { port, user, password } = await server();
    const settings = postgresUrl(
      `postgres://${user}:${encodeURIComponent(password)}@${host}:${port}/postgres?${query}`,
    );
    try {
      const client = await connectDirect(settings, "test");
      const { rows } = await client.query<{ ssl: boolean }>(
        "select ssl from pg_stat_ssl where pid = pg_backend_pid()",
      );
      await client.end();
      return rows[0]?.ssl ?? false;
    } catch (error) {
      assert.ok(isHoldfastError(error, "unavailable"), String(error));
      assert.ok(!error.detail.includes(password));
      return error.detail;
    }
  }

  test("G13: verify-full takes the server by its name under its authority, and refuses any other name or authority", async () => {
    const { host, otherHost, authority, stranger } = await server();
    const root = (file: string) => `sslmode=verify-full&sslrootcert=${encodeURIComponent(file)}`;
    assert.equal(await tried(host, root(authority)), true);
    assert.match(
      String(await tried(otherHost, root(authority))),
      /IP: 127\.\d+\.\d+\.2 is not in the cert's list/,
    );
    assert.match(String(await tried(host, root(stranger))), /unable to verify|self-signed/);
    assert.match(String(await tried(host, "sslmode=verify-full")), /unable to verify|self-signed/);
  });

  test("G13: require encrypts and verifies nothing, and disable does not encrypt", async () => {
    const { host } = await server();
    assert.equal(await tried(host, "sslmode=require"), true);
    assert.equal(await tried(host, "sslmode=disable"), false);
  });

  test("G13: a password comes from a file at each new connection, so a rotated one needs no restart", async () => {
    const { host, port, user, password, authority } = await server();
    const file = `${authority}.password`;
    const url = `postgres://${user}@${host}:${port}/postgres?sslmode=require&password_file=${encodeURIComponent(file)}`;
    const settings = postgresUrl(url);
    await writeFile(file, `${password}\n`);
    const before = await connectDirect(settings, "test");
    await before.query("alter role postgres password 'another'");
    await assert.rejects(connectDirect(settings, "test"), (error) => {
      assert(isHoldfastError(error, "invalid_configuration"), String(error));
      assert.ok(!error.detail.includes(password));
      return true;
    });
    await writeFile(file, "another");
    const later = await connectDirect(settings, "test");
    await later.query(`alter role postgres password ${later.escapeLiteral(password)}`);
    // What is open goes on.
    assert.equal((await before.query("select 1")).rowCount, 1);
    await Promise.all([before.end(), later.end()]);
    assert.throws(() => postgresUrl(url.replace("@", ":x@")), /keep one of them/);
  });
});
