import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { after, describe, type TestContext, test } from "node:test";
import { withClient } from "../../../test/support/database.ts";
import { until } from "../../../test/support/until.ts";
import { isHoldfastError } from "../../core/errors.ts";
import { processIdentity } from "../directory-lock.mjs";
import { serverAccount } from "./account.ts";
import { packagedBinaries, runnableBinaries } from "./binaries.ts";
import { clusterData, dataPath } from "./cluster.ts";
import { readPidFile } from "./previous.ts";
import { type PostgresConnection, type PostgresOptions, startPostgres } from "./server.ts";
import { socketDirectory } from "./socket.ts";

const ownerScript = resolve(import.meta.dirname, "../../../test/fixtures/postgres-owner.ts");

const folders: string[] = [];
function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-pg-"));
  folders.push(folder);
  return folder;
}
after(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** A server that is stopped at the end of the test, whatever became of it. */
async function start(t: TestContext, options: PostgresOptions) {
  const postgres = await startPostgres(options);
  t.after(() => postgres.stop());
  return postgres;
}

function startOwner(t: TestContext, args: readonly string[], account: object = {}): ChildProcess {
  const owner = spawn(process.execPath, [ownerScript, ...args], {
    cwd: "/",
    stdio: ["pipe", "pipe", "inherit"],
    ...account,
  });
  t.after(() => owner.kill("SIGKILL"));
  return owner;
}

interface OwnerReport {
  readonly pid: number;
  readonly connection: PostgresConnection;
}

async function report(owner: ChildProcess): Promise<OwnerReport> {
  assert.ok(owner.stdout);
  const [line] = (await once(createInterface(owner.stdout), "line")) as [string];
  return JSON.parse(line) as OwnerReport;
}

const gone = (pid: number) => processIdentity(pid) === null;

const one = (connection: PostgresConnection, sql: string) =>
  withClient(connection, async (client) => (await client.query<Record<string, unknown>>(sql)).rows[0]);

// In one directory, one after the other: each test starts on what the one before left.
describe("embedded PostgreSQL, one directory through all that can happen to it", () => {
  const directory = newFolder();
  const data = clusterData(directory);

  test("the first start says what it does; data is there after the second", async (t) => {
    const lines: string[] = [];
    const first = await startPostgres({ directory, log: (line) => lines.push(line) });
    assert.match(first.serverVersion, /^17\.6/);
    assert.deepEqual(
      lines.map((line) => line.replace(/ \(.*| 17.*/, "")),
      ["PostgreSQL: making a new database cluster", "PostgreSQL"],
    );
    await one(first.connection, "create table kept (value text)");
    await first.stop();
    assert.ok(gone(first.pid));

    const second = await start(t, { directory });
    assert.deepEqual(await one(second.connection, "select count(*)::int from kept"), { count: 0 });
  });

  test("it listens on no address, in a closed folder, to those who know the password", async (t) => {
    const { connection } = await start(t, { directory });
    assert.deepEqual(await one(connection, "select current_setting('listen_addresses') as addresses"), {
      addresses: "",
    });
    assert.equal(statSync(connection.host).mode & 0o777, 0o700);
    assert.equal(statSync(join(directory, "cluster", "password")).mode & 0o777, 0o600);
    await assert.rejects(one({ ...connection, password: "guess" }, "select"), { code: "28P01" });
  });

  test("text is UTF-8 in code point order, the same on every machine", async (t) => {
    const { connection } = await start(t, { directory });
    assert.deepEqual(
      await one(
        connection,
        "select 'Z' < 'a' as bytewise, upper('ä') as upper, current_setting('TimeZone') as zone",
      ),
      { bytewise: true, upper: "Ä", zone: "UTC" },
    );
  });

  test("a second start on the directory is refused and names the process that has it", async (t) => {
    await start(t, { directory });
    await assert.rejects(startPostgres({ directory }), (error) => {
      assert.ok(isHoldfastError(error, "directory_in_use"));
      assert.match(error.detail, new RegExp(`process ${process.pid}\\b`));
      return true;
    });
  });

  test("SIGKILL of the server is reported, and the next start recovers what was committed", async (t) => {
    const killed = await startPostgres({ directory });
    await one(killed.connection, "insert into kept values ('committed')");
    process.kill(killed.pid, "SIGKILL");
    await killed.ended;
    await killed.stop();

    const next = await start(t, { directory });
    assert.deepEqual(await one(next.connection, "select value from kept"), { value: "committed" });
  });

  test("SIGKILL of the owner ends the server; its lock is taken over", async (t) => {
    const owner = startOwner(t, [directory]);
    const { pid } = await report(owner);
    owner.kill("SIGKILL");
    await until("the server ends", () => gone(pid));
    await start(t, { directory });
  });

  test("an owner that simply ends takes its server along", async (t) => {
    const owner = startOwner(t, [directory]);
    const { pid } = await report(owner);
    owner.stdin?.end();
    const [code] = (await once(owner, "exit")) as [number];
    assert.equal(code, 0);
    assert.ok(gone(pid));
  });

  test("an empty postmaster.pid does not keep it from starting", async (t) => {
    writeFileSync(join(data, "postmaster.pid"), "");
    await start(t, { directory });
  });

  test("a postmaster.pid whose pid another process has now does not keep it from starting", async (t) => {
    // One of the server's own account: PostgreSQL itself passes over the processes of others.
    const other = spawn("sleep", ["1000"], { stdio: "ignore", ...serverAccount(data) });
    t.after(() => other.kill());
    writeFileSync(join(data, "postmaster.pid"), `${other.pid}\n${data}\n1\n5432\n/nowhere\n\n1 1\nready\n`);
    await start(t, { directory });
    assert.equal(other.exitCode ?? other.signalCode, null, "and that process is left alone");
  });

  test("a server that runs without an owner is stopped before a new one starts", async (t) => {
    const account = serverAccount(data);
    const { postgres } = runnableBinaries(packagedBinaries(), account);
    const args = [
      "-D",
      dataPath(data, account),
      "-c",
      "listen_addresses=",
      "-c",
      `unix_socket_directories=${socketDirectory(directory, account, account === null)}`,
    ];
    const alone = spawn(postgres, args, { cwd: data, detached: true, stdio: "ignore", ...account });
    t.after(() => alone.kill("SIGKILL"));
    await until("the server is ready", () => readPidFile(data)?.includes("ready"));

    await start(t, { directory });
    assert.notEqual(alone.exitCode ?? alone.signalCode, null);
  });

  test("a directory of another major version is refused with a clear error", async () => {
    writeFileSync(join(data, "PG_VERSION"), "16\n");
    await assert.rejects(startPostgres({ directory }), (error) => {
      assert.ok(isHoldfastError(error, "postgres_unavailable"));
      assert.match(error.detail, /version 16/);
      return true;
    });
  });
});

test("an initdb that was killed half-way is done again", async (t) => {
  const directory = newFolder();
  const unfinished = () => readdirSync(directory).filter((name) => name.startsWith("cluster"));
  const owner = startOwner(t, [directory]);
  await until("initdb has begun", () =>
    unfinished().some((name) => existsSync(join(directory, name, "data", "PG_VERSION"))),
  );
  owner.kill("SIGKILL");
  assert.ok(!existsSync(join(directory, "cluster")), "it was half-way");

  await start(t, { directory });
  assert.deepEqual(unfinished(), ["cluster"]);
});

test("a throwaway server leaves no process and no folder, even when its owner is killed", async (t) => {
  const directory = newFolder();
  const owner = startOwner(t, [directory, "throwaway"]);
  const { pid } = await report(owner);
  owner.kill("SIGKILL");
  await until("server and folder are gone", () => gone(pid) && !existsSync(directory));
});

const nobody = { uid: 65534, gid: 65534 };

test("an ordinary user starts it as himself", { skip: otherUserSkip() }, async (t) => {
  const directory = newFolder();
  chownSync(directory, nobody.uid, nobody.gid);
  const owner = startOwner(t, [directory], nobody);
  const { connection } = await report(owner);
  assert.equal(connection.host, join(directory, "socket"));
  assert.equal(statSync(clusterData(directory)).uid, nobody.uid);
});

/** Only root can become another user, who must be able to read this checkout and to run this Node. */
function otherUserSkip(): string | false {
  if (process.getuid?.() !== 0) return "this is an ordinary user already";
  const closed = [ownerScript, process.execPath].some((path) => {
    for (let folder = path; folder !== "/"; folder = resolve(folder, "..")) {
      if ((statSync(folder).mode & 0o005) === 0) return true;
    }
    return false;
  });
  return closed ? "the checkout is closed to other users" : false;
}

test("as root it runs as another user, also below a folder that this user cannot enter", {
  skip: process.getuid?.() !== 0 && "needs root",
}, async (t) => {
  const closed = newFolder();
  chmodSync(closed, 0o700);
  const directory = join(closed, "postgres");
  const { pid, connection } = await start(t, { directory });
  assert.notEqual(statSync(`/proc/${pid}`).uid, 0);
  assert.deepEqual(await one(connection, "select 1 as answer"), { answer: 1 });
});
