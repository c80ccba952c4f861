import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { runCommand, startCommand } from "../../test/support/run-command.ts";
import {
  artifactView,
  finishedAt,
  jobId,
  jobView,
  scriptedGateway,
} from "../../test/support/scripted-gateway.ts";
import { sendProblem } from "../../test/support/scripted-server.ts";

const job = `apiVersion: holdfast/v1
kind: Job
metadata: { name: site }
spec:
  phases:
    - { name: build, kind: compile, command: [make] }
`;

describe("holdfast run", { concurrency: 2 }, () => {
  let directory = "";
  let file = "";
  before(async () => {
    directory = await mkdtemp(join(tmpdir(), "holdfast-run-"));
    file = join(directory, "job.yaml");
    await writeFile(file, job);
  });
  after(() => rm(directory, { recursive: true }));

  test("submits, follows and ends with a result line and 0", async (t) => {
    const gateway = await scriptedGateway(t, { artifacts: [artifactView()] });
    const { code, stdout, stderr } = await runCommand(
      ["run", file, "--label", "team=web", "--priority", "0"],
      gateway,
    );
    assert.deepEqual([code, stderr], [0, ""]);
    assert.match(stdout, /^job 01976b2c-\S+ site\n/);
    assert.match(stdout, /attempt 1 phase fetch succeeded after 3\.0s\n/);
    assert.match(stdout, /build \| line 1\nbuild \| line 2\n/);
    assert.match(stdout, /site succeeded after 39s\nartifact site\.tar\.gz 5 bytes sha256:a{64}\n$/);
    const submitted = gateway.seen.find(({ method }) => method === "POST");
    assert.deepEqual(JSON.parse(submitted?.body ?? "").metadata, {
      name: "site",
      labels: { team: "web" },
      priority: 0,
    });
  });

  test("ends with 7 when the job failed and with 8 when it was cancelled, and says why", async (t) => {
    const failed = await scriptedGateway(t, {
      end: {
        state: "failed",
        finished_at: finishedAt,
        failure: { code: "phase_failed", message: "build ended with 2" },
      },
    });
    const cancelled = await scriptedGateway(t, {
      end: {
        state: "cancelled",
        finished_at: finishedAt,
        cancel_requested_at: finishedAt,
        cancel_reason: "wrong branch",
      },
    });
    const one = await runCommand(["run", file], failed);
    assert.equal(one.code, 7);
    assert.match(one.stdout, /site failed: build ended with 2 \(phase_failed\)\n$/);
    const other = await runCommand(["run", "-"], { ...cancelled, input: job });
    assert.equal(other.code, 8);
    assert.match(other.stdout, /site was cancelled: wrong branch\n$/);
  });

  test("prints JSON lines for programs, and nothing else", async (t) => {
    const gateway = await scriptedGateway(t);
    const { code, stdout } = await runCommand(["run", file, "-o", "json"], gateway);
    const lines = stdout
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as { type: string });
    assert.equal(code, 0);
    assert.deepEqual(
      [...new Set(lines.map(({ type }) => type))].sort((a, b) => a.localeCompare(b)),
      ["job", "log", "result"],
    );
    assert.equal(lines.at(-1)?.type, "result");
  });

  test("--detach prints the id alone", async (t) => {
    const gateway = await scriptedGateway(t, { end: null });
    const { code, stdout, stderr } = await runCommand(
      ["run", file, "--detach", "--idempotency-key", "k1"],
      gateway,
    );
    assert.deepEqual([code, stdout, stderr], [0, `${jobId}\n`, ""]);
    assert.equal(gateway.seen[0]?.headers["idempotency-key"], "k1");
  });

  test("Ctrl-C detaches, says how to go on, and cancels nothing", async (t) => {
    const gateway = await scriptedGateway(t, { end: null });
    const child = startCommand(["run", file], gateway);
    let stderr = "";
    child.stderr.on("data", (text: string) => (stderr += text));
    let stdout = "";
    child.stdout.on("data", (text: string) => {
      stdout += text;
      if (stdout.includes("line 2")) child.kill("SIGINT");
    });
    await once(child, "close");
    assert.equal(child.exitCode, 130);
    assert.match(
      stderr,
      new RegExp(`the job goes on.*holdfast logs -f ${jobId}.*holdfast cancel ${jobId}`, "s"),
    );
    assert.ok(gateway.seen.every(({ path }) => !path.endsWith(":cancel")));
  });

  test("a server that restarts meanwhile is followed on", async (t) => {
    const gateway = await scriptedGateway(t, {}, (request, response) => {
      if (request.method === "GET" && request.earlier === 0) response.writeHead(503).end();
      if (request.path.endsWith("/logs") && request.earlier === 1) response.socket?.destroy();
    });
    const { code, stdout } = await runCommand(["run", file], gateway);
    assert.equal(code, 0);
    assert.equal(stdout.match(/line 1/g)?.length, 1);
  });

  test("without a watch it looks again by itself", async (t) => {
    const gateway = await scriptedGateway(t, {}, (request, response) => {
      if (request.path === "/v1/watch") sendProblem(response, 403, "forbidden");
    });
    assert.equal((await runCommand(["run", file], gateway)).code, 0);
  });

  test("a wrong file is shown with its line and a caret, and nothing is sent", async (t) => {
    const gateway = await scriptedGateway(t);
    const wrong = job.replace("command", "comand");
    const { code, stderr } = await runCommand(["run", "-"], { ...gateway, input: wrong });
    assert.equal(code, 2);
    assert.equal(
      stderr,
      [
        "standard input:6:37: unknown field `comand`; did you mean `command`?",
        "      - { name: build, kind: compile, comand: [make] }",
        "                                      ^",
        "error: standard input has one problem.",
        "  (invalid_request)",
        "",
      ].join("\n"),
    );
    assert.equal(gateway.seen.length, 0);
    const missing = await runCommand(["run", join(directory, "nothing.yaml")], gateway);
    assert.equal(missing.code, 2);
    assert.match(missing.stderr, /can't be read: ENOENT/);
    const json = await runCommand(["run", "-", "-o", "json"], { ...gateway, input: wrong });
    const { error } = JSON.parse(json.stderr) as { error: { code: string; errors: { line: number }[] } };
    assert.equal(error.code, "invalid_request");
    assert.equal(error.errors[0]?.line, 6);
  });

  test("a full queue is told with what to do", async (t) => {
    const gateway = await scriptedGateway(t, {}, (_, response) =>
      sendProblem(
        response,
        429,
        "queue_full",
        { detail: "1000 jobs wait" },
        { "retry-after": "3600", "x-request-id": "r-9" },
      ),
    );
    const { code, stderr } = await runCommand(["run", file], gateway);
    assert.equal(code, 6);
    assert.match(
      stderr,
      /^error: 1000 jobs wait\n {2}Try again in \d+ seconds; jobs leave the queue .*\.\n {2}\(queue_full, request r-9\)\n$/,
    );
  });

  test("a reader that stops reading ends it quietly", async (t) => {
    const gateway = await scriptedGateway(t, {
      lines: Array.from({ length: 20_000 }, (_, number) => ({ ...line, cursor: `c${number}` })),
    });
    const child = startCommand(["logs", jobId], gateway);
    let stderr = "";
    child.stderr.on("data", (text: string) => (stderr += text));
    child.stdout.once("data", () => child.stdout.destroy());
    await once(child, "close");
    assert.deepEqual([child.exitCode, stderr], [141, ""]);
  });

  test("names that would drive a terminal are written out", async (t) => {
    const evil = jobView({ failure: { code: "x", message: "\u001b]0;owned\u0007\u202egpj" } });
    const gateway = await scriptedGateway(t, {
      jobs: [evil],
      end: { state: "failed", finished_at: finishedAt },
    });
    const { stdout } = await runCommand(["run", file], gateway);
    assert.match(stdout, /site failed: \\x1b\]0;owned\\x07\\u202egpj \(x\)/);
  });
});

const line = {
  cursor: "c",
  attempt: 1,
  phase: "build",
  stream: "stdout",
  at: finishedAt,
  text: "x".repeat(200),
} as const;
