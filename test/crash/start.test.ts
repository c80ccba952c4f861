import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "pg";
import { createClient } from "../../src/client/client.ts";
import { brandId, type JobId } from "../../src/core/ids.ts";
import { startPostgres } from "../../src/dev/postgres/server.ts";
import { readMarks } from "../support/arena.ts";
import { markedJob } from "../support/marked-job.ts";
import { assertNoProcessOf } from "../support/no-process.ts";
import { assertExactlyOnce, assertRecordSettled } from "../support/settled.ts";
import { commandsIn, lastArtifact, processesOf, type Started, start, startDev } from "../support/started.ts";
import { until } from "../support/until.ts";

const kills = 10;
/** Stretches the example, so that its phases live longer than the processes that watch them. */
const stepMs = 500;
const linux = process.platform === "linux";

test(`S12 E5 E6: SIGKILL of everything at ${kills} random moments of one run, started again each time`, async (t) => {
  const seed = Number(process.env["HOLDFAST_TEST_SEED"] ?? Date.now() % 1_000_000);
  const moments = momentsFrom(seed);
  const said = moments.map(({ ms, after }) => `${ms} ms after ${after}`).join(", ");
  t.diagnostic(`seed ${seed}: killed ${said}`);
  const folder = await mkdtemp(join(tmpdir(), "hf-crash-"));
  t.after(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }));
  const directory = join(folder, "store");
  const markFile = join(folder, "marks");
  const groups = new Set<number>();
  const run = (...words: string[]) => {
    const started = start(t, directory, [...words, "--step-ms", String(stepMs)]);
    groups.add(started.pid);
    return started;
  };
  const commands = collectCommands(directory);

  let marked: JobId | null = null;
  for (const { ms, after } of moments) {
    const started = run("--exit");
    if (after === "the job's line") await jobOf(started);
    marked ??= await submitMarked(directory, markFile);
    await delay(ms);
    started.signalGroup("SIGKILL");
    await started.ended;
    // The server ends by itself once its owner is gone. What runs in sandboxes goes on.
    if (linux) await untilNone(groups, join(directory, "postgres"));
  }
  assert.ok(marked !== null);

  const last = run("--exit");
  const job = await jobOf(last);
  const { status, output } = await last.ended;
  assert.equal(status, 0, output);
  const artifact = lastArtifact(output);
  assert.equal(
    createHash("sha256")
      .update(await readFile(artifact.path))
      .digest("hex"),
    artifact.sha256,
  );
  await finishRest(t, directory, [job, marked]);
  const ran = await commands.end();

  await inStore(directory, async (client) => {
    const rows = async <Row>(text: string, values: readonly unknown[] = []) =>
      (await client.query(text, [...values])).rows as Row[];
    const store = { rows, marks: (of?: JobId) => readMarks(markFile, of) };
    await assertExactlyOnce(store, marked, { state: "succeeded", attempts: 1 });
    await assertRecordSettled(store);
    const attempts = await rows<{ ordinal: number; outcome: string }>(
      "select ordinal, outcome from holdfast.execution_attempts where job_id = $1",
      [job],
    );
    assert.deepEqual(attempts, [{ ordinal: 1, outcome: "succeeded" }], "no second attempt");
    const sandboxes = await rows<{ step: string; name: string; uid: string }>(
      `select s.step, s.name, s.uid from holdfast.sandbox_attempts s
       join holdfast.execution_attempts a on a.tenant_id = s.tenant_id and a.attempt_id = s.owner_id
       where a.job_id = $1 and s.released_at is not null order by s.released_at`,
      [job],
    );
    assert.deepEqual(
      sandboxes.map((sandbox) => sandbox.step),
      ["source", "compile", "publish"],
    );
    for (const { name, uid } of sandboxes) {
      const own = ran.filter((command) => command.startsWith(`${name} `));
      assert.deepEqual([own.length, own[0]?.split(" ")[1]], [1, uid], `${name} ran ${own.join(", ")}`);
    }
    const all = await rows<{ uid: string }>(
      "select uid from holdfast.sandbox_attempts where uid is not null",
    );
    await assertNoProcessOf(all.map((row) => row.uid));
  });
  if (linux) await untilNone(groups, directory);
});

interface Moment {
  readonly ms: number;
  readonly after: "its start" | "the job's line";
}

/** Some while it comes up, most once it works; the first when there is a job. */
function momentsFrom(seed: number): Moment[] {
  let state = seed;
  // mulberry32
  const random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return Array.from({ length: kills }, (_, index) => {
    const early = random() < 0.3 && index > 0;
    const ms = Math.round(random() * (early ? 2_000 : 1_500));
    return { ms, after: early ? "its start" : "the job's line" };
  });
}

async function jobOf(started: Started): Promise<string> {
  const [, job = ""] = await started.said(/^job (\S+) engine-module$/m);
  return job;
}

async function clientIn(directory: string) {
  const { url, token } = JSON.parse(await readFile(join(directory, "dev.json"), "utf8")) as {
    url: string;
    token: string;
  };
  return createClient({ url, token });
}

/** Beside the example runs a job whose phases note each of their starts outside. */
async function submitMarked(directory: string, markFile: string): Promise<JobId> {
  const phases = Array.from({ length: 4 }, () => ({ run: "sleep 0.4" }));
  const client = await clientIn(directory);
  const job = await client.submitJob(markedJob({ markFile }, "marked", phases));
  return brandId<JobId>(job.id);
}

/** `--exit` does not wait for cleaning, nor for other jobs: the next process goes on with these. */
async function finishRest(scope: TestContext, directory: string, jobs: readonly string[]): Promise<void> {
  const dev = startDev(scope, directory);
  await dev.said(/^Holdfast is up/m);
  const client = await clientIn(directory);
  for (const job of jobs) {
    const isCleaned = async () => (await client.listAttempts(job)).every(({ state }) => state === "cleaned");
    await until("it is over", async () => (await client.getJob(job)).finished_at !== null, 60_000);
    await until("it is cleaned", isCleaned, 60_000);
  }
  dev.signal("SIGTERM");
  assert.equal((await dev.ended).status, 0, dev.output());
}

async function inStore<T>(directory: string, body: (client: Client) => Promise<T>): Promise<T> {
  const postgres = await startPostgres({ directory: join(directory, "postgres") });
  try {
    const client = new Client({ ...postgres.connection, database: "holdfast" });
    await client.connect();
    try {
      return await body(client);
    } finally {
      await client.end();
    }
  } finally {
    await postgres.stop();
  }
}

/** Which commands ever ran, by looking at the runtime's own notes all the time. */
function collectCommands(directory: string) {
  const seen = new Set<string>();
  let ended = false;
  const looks = (async () => {
    while (!ended) {
      for (const command of await commandsIn(directory)) seen.add(command);
      await delay(20);
    }
  })();
  return {
    async end() {
      ended = true;
      await looks;
      return [...seen];
    },
  };
}

const untilNone = (groups: ReadonlySet<number>, directory: string) =>
  until("no process is left", async () => (await processesOf(groups, directory)).length === 0);
