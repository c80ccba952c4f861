import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { Client } from "../../src/client/client.ts";
import { isHoldfastError } from "../../src/core/errors.ts";
import { type ArchivedChunk, openLogArchive } from "../../src/sandboxes/log-archive.ts";
import type { LogLine } from "../../src/wire/job.ts";
import { runCommand } from "../support/run-command.ts";
import { type Stack, shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

async function all(lines: AsyncIterable<LogLine>): Promise<LogLine[]> {
  const found: LogLine[] = [];
  for await (const line of lines) found.push(line);
  return found;
}
/** The recorded archive, chunk by chunk: to look through a million lines without promising each. */
async function archivedChunks(stack: Stack): Promise<ArchivedChunk[]> {
  const [row] = await stack.rows<{ blob_key: string; bytes: string; sha256: string }>(
    "select blob_key, bytes, sha256 from holdfast.log_archives",
  );
  assert.ok(row !== undefined);
  const archive = { key: row.blob_key, bytes: BigInt(row.bytes), sha256: row.sha256 };
  const chunks: ArchivedChunk[] = [];
  const { signal } = new AbortController();
  for await (const chunk of await openLogArchive(stack.blobs, archive, signal)) chunks.push(chunk);
  return chunks;
}
const texts = (lines: readonly LogLine[]) => lines.map(({ text }) => text);

const cleaned = (stack: Stack, within?: number) =>
  until(
    "the attempt is cleaned",
    async () => {
      const rows = await stack.rows<{ state: string }>(
        "select state from holdfast.execution_attempts where state = 'cleaned'",
      );
      return rows.length === 1;
    },
    within,
  );

const code = (wanted: string) => (error: unknown) =>
  error instanceof Error && "code" in error && error.code === wanted && !isHoldfastError(error, "internal");

test("E15 E19: a line of 10 MB and a million lines on both streams come whole, and hold the command up little", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation, { logBytesMax: 33_554_432n });
  const { client } = await stack.gateway(foundation);
  const run = `
    began=$(date +%s%N)
    head -c 10000000 /dev/zero | tr '\\0' x; echo
    seq 1 500000 & seq 500001 1000000 >&2; wait
    echo "wrote for $((($(date +%s%N) - began) / 1000000)) ms" >&2`;
  const rssBefore = process.memoryUsage.rss();
  let rssMax = rssBefore;
  const sampling = setInterval(() => {
    rssMax = Math.max(rssMax, process.memoryUsage.rss());
  }, 50);
  t.after(() => clearInterval(sampling));
  const began = performance.now();
  const job = await stack.submit(foundation, shellJob("volume", [{ run }]));
  await cleaned(stack, 60_000);
  const took = performance.now() - began;
  clearInterval(sampling);
  const chunks = await archivedChunks(stack);
  const written = (wanted: string) =>
    chunks
      .filter(({ stream }) => stream === wanted)

      .map(({ body }) => body)
      .join("");
  const numbers = (from: number, to: number) =>
    Array.from({ length: to - from + 1 }, (_, n) => `${from + n}\n`).join("");
  assert.ok(written("stdout") === `${"x".repeat(10_000_000)}\n${numbers(1, 500_000)}`);
  const said = written("stderr").slice(numbers(500_001, 1_000_000).length);
  assert.ok(written("stderr") === `${numbers(500_001, 1_000_000)}${said}`);
  assert.deepEqual(await all(client.logs(job, { tail: 1, phase: "phase-1" })).then(texts), [said.trimEnd()]);
  const [archive] = await stack.rows<{ bytes: string; lines: string }>(
    "select bytes, lines from holdfast.log_archives",
  );
  assert.deepEqual(await stack.rows("select from holdfast.log_chunks"), []);
  const rss = (rssMax - rssBefore) / 1_048_576;
  t.diagnostic(
    `16.9 MB: the command ${said.trimEnd()}; from submit to cleaned ${Math.round(took)} ms; archive ${archive?.bytes} bytes, ${archive?.lines} lines; RSS of everything +${rss.toFixed(0)} MiB`,
  );
  assert.ok(rss < 300, `${rss} MiB`);
});

test("E15: the bound is of the attempt: one mark, where the first phase went over it, and the next stores nothing", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation, { logBytesMax: 100_000n });
  const { client } = await stack.gateway(foundation);
  const phases = [{ run: "seq 1 5000" }, { run: "seq 1 1000000" }, { run: "echo more" }];
  const job = await stack.submit(foundation, shellJob("bounded", phases));
  await cleaned(stack);
  assert.equal((await client.getJob(job)).state, "succeeded");
  const lines = await all(client.logs(job));
  const marks = lines.filter(({ stream }) => stream === "system");
  assert.deepEqual(texts(marks), ["[output beyond 100000 bytes is not kept]"]);
  assert.deepEqual([marks[0]?.phase, lines.at(-1)?.phase], ["phase-2", "phase-2"]);
  const [stored] = await stack.rows<{ bytes: number }>(
    "select sum(log_bytes)::int as bytes from holdfast.sandbox_attempts",
  );
  assert.ok(stored !== undefined && stored.bytes <= 100_000 && stored.bytes > 99_900, String(stored?.bytes));
  const [attempt] = await client.listAttempts(job);
  assert.deepEqual(
    attempt?.sandboxes.map((sandbox) => sandbox.log_truncated),
    [false, true, true],
  );
});

test("E15: secrets of the environment and of files are masked, in encodings and in pieces, over a takeover", async (t) => {
  const stack = await testStack(t);
  const [token, password] = ["tök3n/of+the job!", "hunter2hunter2"];
  await mkdir(join(stack.directory, "secrets", "registry"), { recursive: true });
  await writeFile(join(stack.directory, "secrets", "registry", "password"), `${password}\n`);
  const run = `
    say() { printf 'token %s %s\\n' "$DEPLOY_TOKEN" "$(printf %s "$DEPLOY_TOKEN" | base64 -w0)"; }
    say; say >&2
    printf 'half %s' "$(printf %s "$REGISTRY" | cut -c1-7)"
    until [ -e "$HOME/../go" ] || [ -e ${stack.directory}/go ]; do sleep 0.05; done
    printf '%s done\\n' "$(printf %s "$REGISTRY" | cut -c8-)"
    printf 'user:%s' "$(printf %s "$REGISTRY")" | base64 -w0; echo; echo "callback $HOLDFAST_TOKEN"`;
  const submission = shellJob("secrets", [{ run }]);
  const [phase] = submission.spec.phases;
  assert.ok(phase !== undefined);
  const job = await stack.submit(await stack.foundation("submit"), {
    ...submission,
    spec: {
      ...submission.spec,
      phases: [
        {
          ...phase,
          env: { DEPLOY_TOKEN: token },
          secrets: { REGISTRY: { name: "registry", key: "password" } },
        },
      ],
    },
  });
  const foundation = await stack.foundation("first", { leaseMs: 3_000 });
  const first = await stack.controller(foundation);
  const { client } = await stack.gateway(await stack.foundation("gateway"));
  await until("its first lines are stored", async () => texts(await all(client.logs(job))).length >= 2);
  await first.close();
  await stack.controller(await stack.foundation("second", { leaseMs: 3_000 }));
  await writeFile(join(stack.directory, "go"), "");
  await cleaned(stack);
  const lines = await all(client.logs(job));
  const of = (stream: string) => texts(lines.filter((line) => line.stream === stream));
  assert.deepEqual(of("stderr"), ["token *** ***"]);
  const [one, half, basic, callback] = of("stdout");
  assert.deepEqual([one, half, callback], ["token *** ***", "half *** done", "callback ***"]);
  const shown = Buffer.from(basic?.replace("***", "") ?? "", "base64").toString("latin1");
  assert.ok(basic?.includes("***") === true && !shown.includes("hunter"), basic);
});

test("E14 E19: followed live over its archiving, read later, gone after its retention; plan, UIDs, pins, outcomes stay", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation, { logRetentionSeconds: 4, retentionSeconds: 1 });
  const { client, gateway, token } = await stack.gateway(foundation);
  const pin = `"$HOLDFAST_NODE" "$HOLDFAST_PHASE_HELPER" pin engine=${"c".repeat(40)}`;
  const job = await stack.submit(
    foundation,
    shellJob("history", [{ kind: "source", run: `${pin}; echo pinned` }, { run: "seq 1 200; exit 3" }], {
      sources: { engine: { repository: "https://example.com/engine.git", ref: "main" } },
    }),
  );
  const expected = ["pinned", ...Array.from({ length: 200 }, (_, n) => String(n + 1))];
  const followed = await all(client.logs(job, { follow: true }));
  assert.deepEqual(texts(followed), expected);
  await cleaned(stack);
  const cursor = followed[99]?.cursor ?? "";
  await assertReadable(client, job, followed, cursor);
  const before = await client.listAttempts(job);
  assert.equal(before[0]?.log?.lines, 201);
  await until("the log is removed", async () => (await client.listAttempts(job))[0]?.log?.removed_at != null);
  await assert.rejects(all(client.logs(job)), code("gone"));
  await assert.rejects(all(client.logs(job, { follow: true, after: cursor })), code("gone"));

  const [attempt] = await client.listAttempts(job);
  assert.deepEqual(
    { ...attempt, log: null, resource_version: "" },
    { ...before[0], log: null, resource_version: "" },
  );
  assert.equal(attempt?.state, "cleaned");
  assert.deepEqual(attempt.failure?.code, "phase_failed");
  assert.deepEqual(attempt.pins, { engine: "c".repeat(40) });
  assert.ok(attempt.sandboxes.every(({ uid, state }) => uid !== null && state === "removed"));
  assert.deepEqual(
    attempt.sandboxes.map(({ exit_code }) => exit_code),
    [0, 3],
  );
  const plan = await client.getAttemptPlan(job, 1);
  assert.equal(plan.plan_digest, attempt.plan_digest);
  assert.deepEqual(
    plan.plan.phases.map(({ name, command }) => [name, command.at(-1)]),
    [
      ["phase-1", `${pin}; echo pinned`],
      ["phase-2", "seq 1 200; exit 3"],
    ],
  );
  await assert.rejects(client.getAttemptPlan(job, 2), code("not_found"));
  const env = { HOLDFAST_URL: gateway.address, HOLDFAST_TOKEN: token };
  const told = await runCommand(["describe", "job", job], { env });
  assert.equal(told.code, 0, told.stderr);
  for (const fact of [
    plan.plan_digest,
    "c".repeat(40),
    attempt.sandboxes[1]?.uid ?? "?",
    "with code 3",
    "removed at",
  ]) {
    assert.ok(told.stdout.includes(fact), fact);
  }
});

/** The same, wherever it is read from, for a client and on the command line. */
async function assertReadable(client: Client, job: string, lines: readonly LogLine[], cursor: string) {
  assert.deepEqual(await all(client.logs(job)), lines);
  assert.deepEqual(await all(client.logs(job, { after: cursor })), lines.slice(100));
  assert.deepEqual(await all(client.logs(job, { follow: true, tail: 3 })), lines.slice(-3));
  assert.deepEqual(texts(await all(client.logs(job, { phase: "phase-1" }))), ["pinned"]);
  assert.deepEqual(await all(client.logs(job, { since: "1h", tail: 300 })), lines);
  assert.deepEqual(await all(client.logs(job, { since: "2999-01-01T00:00:00Z" })), []);
}
