import assert from "node:assert/strict";
import type { ChildProcessWithoutNullStreams } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import type { PostgresConnection } from "../../src/dev/postgres/server.ts";
import { testDatabase, withClient } from "../support/database.ts";
import { markedJob } from "../support/marked-job.ts";
import { assertNoProcessOf } from "../support/no-process.ts";
import { OpenSandboxDouble } from "../support/opensandbox/service.ts";
import { runCommand, startCommand } from "../support/run-command.ts";
import { until } from "../support/until.ts";

const patienceMs = 120_000;

function urlOf({ host, port, user, password, database }: PostgresConnection): string {
  return `postgres://${user}:${password}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`;
}

/** The programs of a deployment, as their users start them, with sandboxes of an OpenSandbox service. */
describe("controller programs with OpenSandbox", { concurrency: false }, () => {
  const folder = mkdtempSync(join(tmpdir(), "hf-opensandbox-"));
  const running: ChildProcessWithoutNullStreams[] = [];
  const database = testDatabase({ after });
  const closers: (() => Promise<void>)[] = [];

  after(async () => {
    for (const child of running) {
      const over = child.exitCode === null && child.signalCode === null ? once(child, "exit") : null;
      child.kill("SIGKILL");
      await over;
    }
    for (const close of closers) await close();
    rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
  });

  async function serve(
    program: string,
    env: Record<string, string>,
    says: RegExp,
  ): Promise<{ readonly child: ChildProcessWithoutNullStreams; readonly address: string }> {
    const child = startCommand([program], { env });
    running.push(child);
    let output = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (text: string) => (output += text));
    const found = await until(
      `${program} says ${says}`,
      () => says.exec(output) ?? (child.exitCode === null ? null : "over"),
      patienceMs,
    );
    assert.notEqual(found, "over", output);
    return { child, address: found[1] ?? "" };
  }

  test("E6 E7 S11 G6: a controller dies between create and record; another runs the job's three phases, each once", async () => {
    const service = await OpenSandboxDouble.start();
    closers.push(() => service.close());
    service.apiKey = randomBytes(16).toString("hex");
    service.daemonToken = randomBytes(16).toString("hex");
    const { app, superuser } = await database;
    const rows = <Row>(text: string) =>
      withClient(superuser, async (client) => (await client.query(text)).rows as Row[]);
    const [store] = await rows<{ id: string }>("select installation_id as id from holdfast.store");
    const keys = join(folder, "keys");
    const apiKey = join(folder, "api-key");
    writeFileSync(keys, `first:${randomBytes(32).toString("base64")}\n`);
    writeFileSync(apiKey, `${service.apiKey}\n`);
    const shared = {
      HOLDFAST_DATABASE_URL: urlOf(app),
      HOLDFAST_INSTALLATION: store?.id ?? "",
      HOLDFAST_BLOB_DIRECTORY: join(folder, "blobs"),
      HOLDFAST_CALLBACK_KEYS_FILE: keys,
    };
    const controller = () =>
      serve(
        "controller",
        {
          ...shared,
          HOLDFAST_CALLBACK_PORT: "0",
          HOLDFAST_RUNTIME: "opensandbox",
          HOLDFAST_OPENSANDBOX_URL: service.url,
          HOLDFAST_OPENSANDBOX_API_KEY_FILE: apiKey,
          HOLDFAST_OPENSANDBOX_IMAGE: "registry.test/shell:1",
        },
        /^controller, callbacks on (\S+)/m,
      );

    const { address } = await serve("gateway", { ...shared, HOLDFAST_PORT: "0" }, /^gateway on (\S+)/m);
    const token = await runCommand(["token", "create", "--tenant", "acme", "--principal", "ci"], {
      env: shared,
    });
    assert.equal(token.code, 0, token.stderr);

    // The create takes effect, and whoever asked for it dies before it hears so.
    const created = service.held.hold("done", 1, ({ verb }) => verb === "create");
    const first = await controller();
    const markFile = join(folder, "marks");
    const job = markedJob({ markFile }, "three", [
      { run: "echo one" },
      { run: "echo two" },
      { run: "echo three" },
    ]);
    const env = { HOLDFAST_URL: address, HOLDFAST_TOKEN: token.stdout.trim() };
    const run = runCommand(["run", "-", "-o", "json"], { env, input: JSON.stringify(job) });
    await created.reached;
    first.child.kill("SIGKILL");
    await once(first.child, "exit");
    created.drop();
    assert.deepEqual(await rows("select uid from holdfast.sandbox_attempts where uid is not null"), []);
    const [orphaned = ""] = service.boxes.keys();

    await controller();
    const { code, stdout, stderr } = await run;
    assert.equal(code, 0, `${stdout}${stderr}`);
    const marks = readFileSync(markFile, "utf8").trimEnd().split("\n");
    assert.deepEqual(
      marks.map((mark) => mark.split(" ").slice(1).join(" ")),
      ["1 phase-1", "1 phase-2", "1 phase-3"],
    );
    await until(
      "it is cleaned",
      async () => {
        const open = await rows("select from holdfast.execution_attempts where state <> 'cleaned'");
        return open.length === 0;
      },
      patienceMs,
    );
    const sandboxes = await rows<{ uid: string; runtime: string; state: string; outcome: string }>(
      "select uid, runtime, state, outcome from holdfast.sandbox_attempts order by planned_at",
    );
    assert.equal(sandboxes[0]?.uid, orphaned, "what the dead one made is what ran");
    for (const { runtime, state, outcome } of sandboxes) {
      assert.deepEqual([runtime, state, outcome], ["opensandbox", "removed", "exited"]);
    }
    assert.equal(sandboxes.length, 3);
    assert.deepEqual([...service.boxes.keys()], []);
    await assertNoProcessOf(sandboxes.map(({ uid }) => uid));
  });
});
