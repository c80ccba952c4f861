import assert from "node:assert/strict";
import type { ChildProcessWithoutNullStreams } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { PostgresConnection } from "../../src/dev/postgres/server.ts";
import { type TestDatabase, testDatabase, withClient } from "../support/database.ts";
import { markedJob, publishingPhases, publishingSpec } from "../support/marked-job.ts";
import { runCommand, startCommand } from "../support/run-command.ts";
import { type S3Server, startS3 } from "../support/s3/server.ts";
import { until } from "../support/until.ts";

const patienceMs = 60_000;

function urlOf({ host, port, user, password, database }: PostgresConnection): string {
  return `postgres://${user}:${password}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`;
}

/** A login for one program, with the roles that docs/operations.md gives it and no other. */
async function login(db: TestDatabase, name: string, roles: readonly string[]): Promise<string> {
  const user = `${name}_${db.name}`;
  const granted = roles.map((role) => `holdfast_${role}`).join(", ");
  await withClient(db.superuser, async (client) => {
    await client.query(`create role ${user} login password ${client.escapeLiteral(db.app.password)}`);
    await client.query(`grant ${granted} to ${user} with inherit false, set true`);
  });
  return urlOf({ ...db.app, user });
}

/** What a deployment is: two programs that share a database and an object store, and nothing else. */
describe("gateway and controller as processes of their own, with S3", { concurrency: false }, () => {
  const folder = mkdtempSync(join(tmpdir(), "hf-separate-"));
  const running: ChildProcessWithoutNullStreams[] = [];
  const db = testDatabase({ after });
  let s3: S3Server;
  let shared: Record<string, string> = {};

  async function serve(program: string, env: Record<string, string>, says: RegExp): Promise<string> {
    const child = startCommand([program], { env: { ...shared, ...env } });
    running.push(child);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (text: string) => (output += text));
    const found = await until(
      `${program} says ${says}`,
      () => says.exec(output) ?? (child.exitCode === null ? null : "over"),
      patienceMs,
    );
    assert.notEqual(found, "over", output);
    return found[1] ?? "";
  }

  before(async () => {
    s3 = await startS3();
    const store = await withClient((await db).superuser, (client) =>
      client.query<{ id: string }>("select installation_id as id from holdfast.store"),
    );
    shared = {
      HOLDFAST_INSTALLATION: store.rows[0]?.id ?? "",
      HOLDFAST_BLOB_STORE: "s3",
      HOLDFAST_S3_ENDPOINT: s3.endpoint,
      HOLDFAST_S3_REGION: s3.region,
      HOLDFAST_S3_BUCKET: s3.bucket,
      HOLDFAST_S3_ACCESS_KEY_ID: s3.credentials.accessKeyId,
      HOLDFAST_S3_SECRET_ACCESS_KEY: s3.credentials.secretAccessKey,
      HOLDFAST_S3_PATH_STYLE: "true",
    };
  });
  after(async () => {
    for (const child of running) {
      const over = child.exitCode === null ? once(child, "exit") : null;
      child.kill("SIGKILL");
      await over;
    }
    await s3.close();
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  test("E16 E18 E20 S13: a job's artifact goes from its sandbox through S3 to whoever asks the gateway", async () => {
    const keys = join(folder, "keys");
    writeFileSync(keys, `first:${randomBytes(32).toString("base64")}\n`);
    const url = await serve(
      "gateway",
      {
        HOLDFAST_PORT: "0",
        HOLDFAST_DATABASE_URL: await login(await db, "gateway", ["gateway", "dispatcher"]),
      },
      /^gateway on (\S+)/m,
    );
    await serve(
      "controller",
      {
        HOLDFAST_CALLBACK_PORT: "0",
        HOLDFAST_CALLBACK_KEYS_FILE: keys,
        HOLDFAST_SANDBOX_DIRECTORY: join(folder, "sandboxes"),
        HOLDFAST_DATABASE_URL: await login(await db, "controller", ["controller", "dispatcher", "retention"]),
      },
      /^controller, callbacks on (\S+)/m,
    );
    const token = await runCommand(["token", "create", "--tenant", "acme", "--principal", "ci"], {
      env: {
        ...shared,
        HOLDFAST_DATABASE_URL: await login(await db, "operator", ["operator", "dispatcher"]),
      },
    });
    assert.equal(token.code, 0, token.stderr);
    const env = { HOLDFAST_URL: url, HOLDFAST_TOKEN: token.stdout.trim() };
    const job = markedJob(
      { markFile: join(folder, "marks") },
      "through-s3",
      publishingPhases,
      publishingSpec,
    );
    const run = await runCommand(["run", "-", "-o", "json"], { env, input: JSON.stringify(job) });
    assert.equal(run.code, 0, `${run.stdout}${run.stderr}`);
    const result = JSON.parse(run.stdout.trimEnd().split("\n").at(-1) ?? "") as { job: { id: string } };
    const download = await runCommand(["download", result.job.id, "-o", "json"], { env, cwd: folder });
    assert.equal(download.code, 0, download.stderr);
    const digest = createHash("sha256")
      .update(readFileSync(join(folder, "site.tar.gz")))
      .digest("hex");
    assert.ok(download.stdout.includes(digest), download.stdout);

    const uploads = s3.seen.filter(({ method, path }) => method === "PUT" && path.endsWith("site.tar.gz"));
    assert.ok(uploads.length > 0, "the artifact was not uploaded to S3");
    for (const { headers } of uploads) assert.equal(headers.authorization, undefined, "not by a capability");
  });

  test("G13: at SIGTERM a gateway is first no longer ready, serves on for the delay that it was given, and ends with 0", async () => {
    const url = await serve(
      "gateway",
      {
        HOLDFAST_PORT: "0",
        HOLDFAST_DRAIN_DELAY: "5s",
        HOLDFAST_DATABASE_URL: await login(await db, "drained", ["gateway", "dispatcher"]),
      },
      /^gateway on (\S+)/m,
    );
    const child = running.at(-1);
    assert.ok(child);
    const status = async (path: string) =>
      (await fetch(`${url}${path}`, { headers: { connection: "close" } })).status;
    await until("it is ready", async () => (await status("/readyz")) === 200);
    const ended = once(child, "exit");
    child.kill("SIGTERM");
    await until("it is no longer ready", async () => (await status("/readyz")) === 503);
    // On a new connection: 401 is the API's own answer.
    assert.equal(await status("/v1/jobs"), 401);
    assert.deepEqual(await ended, [0, null]);
    await assert.rejects(status("/healthz"), "nobody listens");
  });
});
