import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { parse } from "yaml";
import { sandboxView } from "../../test/support/job-views.ts";
import { runCommand } from "../../test/support/run-command.ts";
import {
  artifactView,
  attemptView,
  finishedAt,
  jobId,
  jobView,
  logLine,
  scriptedGateway,
} from "../../test/support/scripted-gateway.ts";
import { sendProblem } from "../../test/support/scripted-server.ts";

const otherId = "01976b2c-0000-7000-8000-0000000000ff";

describe("the command line", { concurrency: 2 }, () => {
  test("every command has help with an example, on standard output", async () => {
    const commands = [
      "run",
      "logs",
      "get jobs",
      "describe job",
      "watch",
      "download",
      "cancel",
      "patch",
      "label",
    ];
    for (const command of commands) {
      const { code, stdout, stderr } = await runCommand([...command.split(" "), "--help"]);
      assert.deepEqual([code, stderr], [0, ""], command);
      assert.match(stdout, new RegExp(`Usage: holdfast ${command}`));
      assert.match(stdout, /Examples:\n {2}\$ holdfast /);
      assert.match(stdout, /--url <url>/);
    }
  });

  test("without a word it shows what there is; a lazy command has its own help", async () => {
    const all = await runCommand([]);
    assert.equal(all.code, 0);
    for (const name of ["run", "schema", "dev", "start"])
      assert.match(all.stdout, new RegExp(`^  ${name}`, "m"));
    const schema = await runCommand(["schema", "--help"]);
    assert.equal(schema.code, 0);
    assert.match(schema.stdout, /Usage: holdfast schema .*apply/s);
    assert.match((await runCommand(["--version"])).stdout, /^\d+\.\d+\.\d+/);
  });

  test("a mistyped command or flag ends with 2 and a suggestion", async () => {
    const command = await runCommand(["cancle", "x"]);
    assert.equal(command.code, 2);
    assert.match(command.stderr, /^error: unknown command 'cancle' \(Did you mean cancel\?\)\n/);
    const flag = await runCommand(["get", "jobs", "--limit", "0", "--output=json"]);
    assert.equal(flag.code, 2);
    assert.match(
      (JSON.parse(flag.stderr) as { error: { detail: string } }).error.detail,
      /whole number from 1/,
    );
    const inLazy = await runCommand(["schema", "statsu"]);
    assert.equal(inLazy.code, 2);
    assert.match(inLazy.stderr, /Did you mean status/);
  });

  test("a process of a deployment names all that it lacks in one sentence", async () => {
    const lacks = async (words: readonly string[], env: Readonly<Record<string, string>> = {}) => {
      const { code, stderr } = await runCommand(words, { env });
      assert.equal(code, 2);
      return stderr.split("\n")[0];
    };
    assert.equal(
      await lacks(["gateway"]),
      "error: HOLDFAST_DATABASE_URL, HOLDFAST_INSTALLATION, HOLDFAST_BLOB_DIRECTORY and HOLDFAST_CALLBACK_KEYS_FILE are not set",
    );
    assert.equal(
      await lacks(["controller", "--runtime", "kubernetes"], {
        HOLDFAST_DATABASE_URL: "postgres://a@127.0.0.1/b?pooler=transaction",
        HOLDFAST_BLOB_STORE: "s3",
      }),
      "error: HOLDFAST_DATABASE_DIRECT_URL, HOLDFAST_INSTALLATION, HOLDFAST_S3_BUCKET, HOLDFAST_CALLBACK_KEYS_FILE and HOLDFAST_KUBERNETES_NAMESPACE are not set",
    );
  });

  test("a wrong environment is named, key by key", async () => {
    const { code, stderr } = await runCommand(["get", "jobs"], {
      env: { HOLDFAST_PORT: "x", HOLDFAST_URL: "y" },
    });
    assert.equal(code, 2);
    assert.match(stderr, /HOLDFAST_PORT must be .*; HOLDFAST_URL must be/);
  });

  describe("get jobs", () => {
    test("prints a table, with what could drive a terminal written out", async (t) => {
      const gateway = await scriptedGateway(t, { jobs: [jobView({ labels: { note: "\u001b[2J" } })] });
      const { code, stdout } = await runCommand(
        ["get", "jobs", "--state", "running", "--label", "note=x"],
        gateway,
      );
      assert.equal(code, 0);
      const [heading, row] = stdout.split("\n");
      assert.match(heading ?? "", /^ID +NAME +STATE +PRIORITY +ATTEMPTS +AGE +LABELS$/);
      assert.match(row ?? "", /^01976b2c-\S+ +site +running +2 +1 +\d+d +note=\\x1b\[2J$/);
      assert.equal(gateway.seen[0]?.query.get("state"), "running");
      assert.equal(gateway.seen[0]?.query.get("label"), "note=x");
      assert.equal(gateway.seen[0]?.headers.authorization, "Bearer hft_test");
    });

    test("prints JSON, YAML or names for programs", async (t) => {
      const gateway = await scriptedGateway(t);
      const json = await runCommand(["get", "jobs", "-o", "json"], gateway);
      assert.deepEqual(JSON.parse(json.stdout), { items: [jobView()] });
      const yaml = await runCommand(["get", "jobs", jobId, "-o", "yaml"], gateway);
      assert.deepEqual(parse(yaml.stdout), jobView());
      assert.equal((await runCommand(["get", "jobs", "-o", "name"], gateway)).stdout, `job/${jobId}\n`);
    });

    test("says what to do when there is none", async (t) => {
      const gateway = await scriptedGateway(t, { jobs: [] });
      const { code, stdout, stderr } = await runCommand(["get", "jobs"], gateway);
      assert.deepEqual([code, stdout], [0, ""]);
      assert.match(stderr, /holdfast run FILE/);
    });
  });

  test("the beginning of an id is enough when it is the only one", async (t) => {
    const gateway = await scriptedGateway(t, { jobs: [jobView(), jobView({ id: otherId })] });
    const unique = await runCommand(["get", "jobs", jobId.slice(0, 34), "-o", "name"], gateway);
    assert.equal(unique.code, 2);
    assert.match(unique.stderr, /several jobs' ids begin with/);
    const one = await runCommand(["get", "jobs", otherId.slice(0, 35), "-o", "name"], gateway);
    assert.equal(one.stdout, `job/${otherId}\n`);
    assert.equal((await runCommand(["describe", "job", "ffffffff"], gateway)).code, 3);
    assert.equal((await runCommand(["describe", "job", "abc"], gateway)).code, 2);
  });

  test("describe tells a job's whole story", async (t) => {
    const failed = attemptView({
      state: "cleaned",
      outcome: "failed",
      finished_at: finishedAt,
      cleaned_at: finishedAt,
      failure: { code: "phase_failed", message: "build ended with 2" },
      log: {
        lines: 2,
        bytes: 99,
        sha256: "b".repeat(64),
        archived_at: finishedAt,
        retain_until: "2026-02-01T03:04:40.000000Z",
        removed_at: "2026-02-01T03:04:41.000000Z",
      },
      sandboxes: [
        sandboxView(),
        sandboxView({
          phase: "build",
          state: "stopping",
          stopped_at: null,
          stop_proof: null,
          outcome: null,
          exit_code: null,
          stop_unproven: { since: finishedAt, reason: "the host does not answer" },
        }),
      ],
    });
    const gateway = await scriptedGateway(t, { attempts: [failed], artifacts: [artifactView()] });
    const { code, stdout } = await runCommand(["describe", "job", jobId], gateway);
    assert.equal(code, 0);
    for (const expected of [
      /^State +running$/m,
      /^Attempt 1 +failed, 39s, pool default$/m,
      /It failed: build ended with 2 \(phase_failed\)\./,
      /Plan sha256:a{64}, runtime process, at most 30m00s/,
      /source engine https:\/\/example\.com\/engine\.git main/,
      /^ +build: make all$/m,
      /pin engine c{40}/,
      /✔ fetch +source +succeeded +3\.0s/,
      /▸ build +compile +running .*50% half way/,
      /planned 03:04:01Z → held \+1\.0s → released \+0\.0s → stopped \+3\.0s/,
      /exited with code 0 \(proof of stop: record\)/,
      /Log: 2 lines, archived in 99 bytes, removed at 2026-02-01 03:04:41Z/,
      /cleaned at 2026-01-02/,
      /Its stop has not been proven since .*: the host does not answer\. Its slot stays taken/,
      /site\.tar\.gz 5 bytes sha256:a{64}, kept until 2026-02-01/,
    ]) {
      assert.match(stdout, expected);
    }
    assert.ok(!stdout.includes("\u001b"));
    const json = await runCommand(["describe", "job", jobId, "-o", "json"], gateway);
    assert.deepEqual(Object.keys(JSON.parse(json.stdout) as object), [
      "job",
      "attempts",
      "plans",
      "artifacts",
    ]);
  });

  test("logs prints lines, with time and phase when asked", async (t) => {
    const lines = [logLine(1), logLine(2, { phase: "fetch" })];
    const gateway = await scriptedGateway(t, { lines });
    assert.equal((await runCommand(["logs", jobId], gateway)).stdout, "line 1\nline 2\n");
    const full = await runCommand(
      ["logs", "-f", jobId, "--timestamps", "--prefix", "--phase", "build"],
      gateway,
    );
    assert.equal(full.code, 0);
    assert.match(full.stdout, /^2026-01-02T03:04:01\.000000Z 1\/build \| line 1\n/);
    assert.equal(gateway.seen.at(-1)?.query.get("phase"), "build");
    await runCommand(["logs", jobId, "--since", "10m", "--tail", "1"], gateway);
    const asked = gateway.seen.filter(({ path }) => path.endsWith("/logs")).slice(-2);
    assert.deepEqual(
      asked.map(({ query }) => [query.get("since"), query.get("tail"), query.get("after")]),
      [
        ["10m", "1", null],
        ["10m", null, "c2"],
      ],
    );
    assert.equal((await runCommand(["logs", jobId, "--tail", "-1"], gateway)).code, 2);
  });

  test("cancel asks for each job and keeps going past one that it can't", async (t) => {
    const gateway = await scriptedGateway(t);
    const { code, stdout, stderr } = await runCommand(
      ["cancel", otherId, jobId, "--reason", "wrong branch"],
      gateway,
    );
    assert.equal(code, 3);
    assert.match(stderr, /^error: no job .*\n.*\n {2}\(not_found\)\n$/);
    assert.equal(stdout, `${jobId} site is being cancelled: wrong branch\n`);
  });

  test("patch and label send only what changes, under the version that was read", async (t) => {
    const gateway = await scriptedGateway(t);
    const patch = await runCommand(["patch", jobId, "--priority", "0"], gateway);
    assert.equal(patch.stdout, `${jobId} site changed, version 8\n`);
    const sent = gateway.seen.at(-1);
    assert.equal(sent?.body, '{"priority":0}');
    assert.equal(sent.headers["if-match"], '"7"');
    await runCommand(["label", jobId, "team=web", "old-"], gateway);
    assert.equal(gateway.seen.at(-1)?.body, '{"labels":{"team":"web","old":null}}');
    assert.equal((await runCommand(["patch", jobId], gateway)).code, 2);
  });

  test("watch prints each change; get --watch each job that changed", async (t) => {
    const event = (operation: string) =>
      `id: w\nevent: ${operation}\ndata: ${JSON.stringify({ at: finishedAt, kind: "job", id: jobId, operation, resource_version: "8", cursor: "w" })}\n\n`;
    const gateway = await scriptedGateway(t, {}, (request, response) => {
      if (request.path !== "/v1/watch") return;
      if (request.earlier === 0) response.writeHead(200).end(event("queued"));
      else sendProblem(response, 401, "unauthenticated", { detail: "the token was revoked" });
    });
    const { code, stdout, stderr } = await runCommand(["watch", "--kind", "job"], gateway);
    assert.equal(code, 4);
    assert.equal(stdout, `03:04:40.000  job/${jobId}  queued  version 8\n`);
    assert.match(stderr, /the token was revoked/);
  });

  describe("download", () => {
    const content = Buffer.from("the artifact");
    const artifact = artifactView({
      bytes: content.length,
      sha256: createHash("sha256").update(content).digest("hex"),
    });
    let cwd = "";
    before(async () => {
      cwd = await mkdtemp(join(tmpdir(), "holdfast-download-"));
    });
    after(() => rm(cwd, { recursive: true }));

    test("the file appears whole and verified, and is not overwritten without --force", async (t) => {
      const gateway = await scriptedGateway(t, { artifacts: [artifact], content });
      const first = await runCommand(["download", jobId], { ...gateway, cwd });
      assert.equal(first.code, 0);
      assert.match(
        first.stdout,
        new RegExp(`site\\.tar\\.gz {2}site\\.tar\\.gz 12 bytes sha256:${artifact.sha256}\n$`),
      );
      assert.deepEqual(await readFile(join(cwd, "site.tar.gz")), content);
      const again = await runCommand(["download", jobId], { ...gateway, cwd });
      assert.equal(again.code, 2);
      assert.match(again.stderr, /exists\n {2}Give another file with -O, or --force/);
      assert.equal((await runCommand(["download", jobId, "--force"], { ...gateway, cwd })).code, 0);
    });

    test("other bytes than the promised ones leave nothing behind", async (t) => {
      for (const wrong of [
        Buffer.from("the artifacT"),
        Buffer.from("the"),
        Buffer.from("the artifact and more"),
      ]) {
        const gateway = await scriptedGateway(t, { artifacts: [artifact], content: wrong });
        const { code, stderr } = await runCommand(["download", jobId, "-O", "other"], { ...gateway, cwd });
        assert.equal(code, 1);
        assert.match(stderr, /is not what was promised/);
      }
      assert.ok(!(await readdir(cwd)).some((name) => name.startsWith("other")));
    });

    test("a name from the server never chooses the directory", async (t) => {
      const gateway = await scriptedGateway(t, { artifacts: [{ ...artifact, name: "../evil" }], content });
      const { code, stderr } = await runCommand(["download", jobId], { ...gateway, cwd });
      assert.equal(code, 2);
      assert.match(stderr, /no plain file name/);
    });
  });

  describe("without settings", () => {
    let cwd = "";
    before(async () => {
      cwd = await mkdtemp(join(tmpdir(), "holdfast-local-"));
      await mkdir(join(cwd, ".holdfast"));
      await mkdir(join(cwd, "below"));
    });
    after(() => rm(cwd, { recursive: true }));

    test("the server of this checkout is found from below, by a file that is ours alone", async (t) => {
      const gateway = await scriptedGateway(t);
      const file = join(cwd, ".holdfast", "dev.json");
      await writeFile(file, JSON.stringify({ url: gateway.url, token: "hft_local" }), { mode: 0o600 });
      const below = { cwd: join(cwd, "below") };
      assert.equal((await runCommand(["get", "jobs", "-o", "name"], below)).stdout, `job/${jobId}\n`);
      assert.equal(gateway.seen[0]?.headers.authorization, "Bearer hft_local");

      const elsewhere = await scriptedGateway(t);
      await runCommand(["get", "jobs", "--url", elsewhere.url], below);
      assert.equal(elsewhere.seen[0]?.headers.authorization, undefined);

      await chmod(file, 0o644);
      const open = await runCommand(["get", "jobs"], below);
      assert.equal(open.code, 2);
      assert.match(open.stderr, /open to others/);
      await writeFile(file, JSON.stringify({ url: "http://example.com", token: "x" }));
      await chmod(file, 0o600);
      assert.match((await runCommand(["get", "jobs"], below)).stderr, /not on loopback/);
    });

    test("no server at all ends with 6 and says how to start one", async () => {
      const { code, stderr } = await runCommand(["get", "jobs"], { cwd: tmpdir() });
      assert.equal(code, 6);
      assert.match(stderr, /npm start/);
    });
  });
});
