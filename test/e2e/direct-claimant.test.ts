import assert from "node:assert/strict";
import { once } from "node:events";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { JobId } from "../../src/core/ids.ts";
import { transition } from "../../src/core/postgres/transition.ts";
import { cancelJob } from "../../src/executions/job.store.ts";
import type { Foundation } from "../../src/main/process.ts";
import { ageClaim, directStack, imageSpec, insertHistorical, jobFacts } from "../support/historical.ts";
import { runCommand, startCommand } from "../support/run-command.ts";
import { type Stack, shellJob } from "../support/stack.ts";
import { until } from "../support/until.ts";

async function open(t: TestContext) {
  const { stack, host } = await directStack(t);
  return { stack, host, foundation: await stack.foundation("direct-claimant") };
}

const over = ["succeeded", "failed", "cancelled"];

function ended(stack: Stack, job: JobId) {
  return until("the job is over", async () => {
    const facts = await jobFacts(stack, job);
    return over.includes(facts.state) ? facts : null;
  });
}

const cancel = (stack: Stack, { db }: Foundation, job: JobId) =>
  transition(db, { role: "gateway", tenant: stack.tenant, name: "cancel" }, (tx) =>
    cancelJob(tx, { job, reason: "a test" }),
  );

test("E13: a historical job runs phase after phase as containers, and whoever watches sees it", async (t) => {
  const { stack, host, foundation } = await open(t);
  const say = (word: string) => `echo "$HOLDFAST_JOB $HOLDFAST_PHASE ${word}" >> ${host.markFile}`;
  const job = await insertHistorical(stack, imageSpec([say("one; $(id) 'quoted'"), say("two")]));
  await host.claimant(foundation);
  const facts = await ended(stack, job);
  assert.equal(facts.state, "succeeded", facts.failure_message ?? "");
  assert.match(facts.claimed_by ?? "", /^host-1\/[0-9a-f-]{36}$/);
  const marks = await host.marks();
  assert.equal(marks.length, 2);
  assert.match(marks[0] ?? "", new RegExp(`^${job} phase-1 one; uid=.* 'quoted'$`));
  assert.equal(marks[1], `${job} phase-2 two`);
  await until("no container is left", async () => (await host.containers()).length === 0);
  const changes = await stack.rows<{ operation: string; body: { state: string } }>(
    "select operation, body from holdfast.resource_changes where kind = 'job' and resource_id = $1 order by resource_version",
    [job],
  );
  assert.deepEqual(
    changes.map(({ operation, body }) => [operation, body.state]),
    [
      ["job.started", "running"],
      ["job.succeeded", "succeeded"],
    ],
  );
});

test("E13: jobs are taken oldest first, and one that is enrolled is left alone", async (t) => {
  const { stack, host, foundation } = await open(t);
  const mark = (word: string) => imageSpec([`echo ${word} >> ${host.markFile}`]);
  const enrolled = await stack.submit(foundation, {
    ...shellJob("enrolled", []),
    spec: mark("enrolled"),
  });
  for (const word of ["first", "second", "third"]) await insertHistorical(stack, mark(word));
  // The oldest of all, so the first that one who did not look would take.
  await stack.rows(
    `with older as (update holdfast.jobs set queued_at = now() - interval '2 days' where job_id = $1 returning job_id, queued_at)
     update holdfast.leases l set due_at = queued_at, wake_at = queued_at from older where l.resource_id = older.job_id`,
    [enrolled],
  );
  await host.claimant(foundation);
  await until("all three", async () => (await host.marks()).length === 3);
  assert.deepEqual(await host.marks(), ["first", "second", "third"]);
  const facts = await jobFacts(stack, enrolled);
  assert.deepEqual([facts.state, facts.claimed_by], ["queued", null]);
});

test("E13: the database refuses a claimant that takes an enrolled job all the same", async (t) => {
  const { stack, foundation } = await open(t);
  const job = await stack.submit(foundation, shellJob("enrolled", [{ run: "true" }]));
  const faulty = "update holdfast.jobs set state = 'running', claimed_by = 'host-1/faulty' where job_id = $1";
  await assert.rejects(stack.rows(faulty, [job]), { constraint: "jobs_enrolled_are_not_claimed" });
});

test("E13: what the direct claimant has no means for is refused with the reason, and nothing is made", async (t) => {
  const { stack, host, foundation } = await open(t);
  const [phase] = imageSpec(["true"]).phases;
  const refusals: readonly (readonly [spec: unknown, message: RegExp])[] = [
    [{ phases: [{ ...phase, image: "--privileged" }] }, /begins with a hyphen/],
    [{ phases: [{ ...phase, image: undefined }] }, /names no image/],
    [{ phases: [{ ...phase, secrets: { TOKEN: { name: "a", key: "b" } } }] }, /secrets/],
    [
      { phases: [{ ...phase, kind: "source" }], sources: { a: { repository: "https://a", ref: "b" } } },
      /sources/,
    ],
    [{ steps: ["make"] }, /one problem|problems/],
    ["make", /one problem|problems/],
  ];
  await host.claimant(foundation);
  for (const [spec, message] of refusals) {
    const facts = await ended(stack, await insertHistorical(stack, spec));
    assert.deepEqual([facts.state, facts.failure_code], ["failed", "plan_refused"]);
    assert.match(facts.failure_message ?? "", message);
    assert.equal(facts.container_id, null);
  }
  assert.deepEqual(await host.containers(), []);
});

test("E13: a phase that fails, or that can't be started, fails the job and no later one runs", async (t) => {
  const { stack, host, foundation } = await open(t);
  const claimant = await host.claimant(foundation);
  const failed = await ended(
    stack,
    await insertHistorical(stack, imageSpec(["exit 3", `echo x >> ${host.markFile}`])),
  );
  assert.deepEqual([failed.state, failed.failure_code], ["failed", "phase_failed"]);
  assert.match(failed.failure_message ?? "", /phase-1 ended with exit code 3/);

  const [phase] = imageSpec(["true"]).phases;
  const absent = await ended(
    stack,
    await insertHistorical(stack, { phases: [{ ...phase, image: "missing" }] }),
  );
  assert.equal(absent.failure_code, "start_failed");
  assert.match(absent.failure_message ?? "", /manifest unknown/);

  const mend = await host.fault("no-start");
  const unable = await ended(stack, await insertHistorical(stack, imageSpec(["true"])));
  assert.equal(unable.failure_code, "start_failed");
  await mend();
  await until("no container is left", async () => (await host.containers()).length === 0);
  assert.deepEqual(await host.marks(), []);
  assert.deepEqual(claimant.errors, []);
});

test("E13: a cancellation stops the container before the job says cancelled", async (t) => {
  const { stack, host, foundation } = await open(t);
  const job = await insertHistorical(
    stack,
    imageSpec([`echo up >> ${host.markFile}; exec sleep 60`, "true"]),
  );
  await host.claimant(foundation);
  await until("it runs", async () => (await host.marks()).length === 1);
  await cancel(stack, foundation, job);
  const facts = await ended(stack, job);
  assert.deepEqual([facts.state, facts.failure_code], ["cancelled", null]);
  await until("no container is left", async () => (await host.containers()).length === 0);
});

test("E13: a job past its deadline is stopped and fails, also one that ignores SIGTERM", async (t) => {
  const { stack, host, foundation } = await open(t);
  const stubborn = "trap '' TERM; while :; do sleep 0.1; done";
  const job = await insertHistorical(stack, imageSpec([stubborn], { deadline: "900ms", grace: "200ms" }));
  await host.claimant(foundation);
  const facts = await ended(stack, job);
  assert.deepEqual([facts.state, facts.failure_code], ["failed", "deadline_exceeded"]);
  await until("no container is left", async () => (await host.containers()).length === 0);
});

test("E13: while the command does not answer a job waits, and then goes on", async (t) => {
  const { stack, host, foundation } = await open(t);
  const job = await insertHistorical(stack, imageSpec([`echo ran >> ${host.markFile}`]));
  let mend = async () => {};
  const claimant = await host.claimant(foundation, {
    containers: {
      ...host.real,
      // It goes away between two words.
      async create(...words) {
        if (claimant.errors.length === 0) mend = await host.fault("down");
        return host.real.create(...words);
      },
    },
  });
  await until("it failed to answer", () => claimant.errors.length > 0);
  assert.equal((await jobFacts(stack, job)).state, "running");
  await mend();
  assert.equal((await ended(stack, job)).state, "succeeded");
  assert.deepEqual(await host.marks(), ["ran"]);
});

test("E13: after SIGKILL the next claimant of the host adopts the container, and nothing runs twice", async (t) => {
  const { stack, host, foundation } = await open(t);
  const gate = join(stack.directory, "gate");
  const wait = `echo "$HOLDFAST_PHASE" >> ${host.markFile}; while [ ! -e ${gate} ]; do sleep 0.05; done`;
  const job = await insertHistorical(stack, imageSpec([wait, `echo "$HOLDFAST_PHASE" >> ${host.markFile}`]));
  const { host: address, port, database, user, password } = stack.database.app;
  const login = `${encodeURIComponent(user)}:${encodeURIComponent(password ?? "")}`;
  const child = startCommand(["direct-claimant", "--tenant", stack.tenant, "--host", "host-1"], {
    env: {
      HOLDFAST_DATABASE_URL: `postgres://${login}@localhost:${port}/${database}?host=${encodeURIComponent(address)}`,
      HOLDFAST_INSTALLATION: stack.installation,
      HOLDFAST_DIRECT_COMMAND: host.command,
    },
  });
  let said = "";
  child.stderr.on("data", (text: string) => (said += text));
  child.stdout.on("data", (text: string) => (said += text));
  t.after(() => child.kill("SIGKILL"));
  await until("phase 1 runs", async () => {
    assert.equal(child.exitCode, null, said);
    return (await host.marks()).length === 1;
  });
  const first = await jobFacts(stack, job);
  child.kill("SIGKILL");
  await once(child, "close");

  await ageClaim(stack, job);
  // Another host's claimant can't see the container: it leaves the claim where it is.
  const elsewhere = await host.claimant(foundation, { host: "host-2" });
  const own = await insertHistorical(stack, imageSpec(["true"]));
  await ended(stack, own);
  assert.equal((await jobFacts(stack, job)).claimed_by, first.claimed_by);
  await elsewhere.stop();

  await host.claimant(foundation);
  const taken = await until("the claim is taken over", async () => {
    const facts = await jobFacts(stack, job);
    return facts.claimed_by === first.claimed_by ? null : facts;
  });
  assert.equal(taken.container_id, first.container_id);
  await writeFile(gate, "");
  assert.equal((await ended(stack, job)).state, "succeeded");
  assert.deepEqual(await host.marks(), ["phase-1", "phase-2"]);
  await until("no container is left", async () => (await host.containers()).length === 0);
});

test("E13: a recorded container that is gone fails the job instead of running it twice", async (t) => {
  const { stack, host, foundation } = await open(t);
  const job = await insertHistorical(stack, imageSpec([`echo up >> ${host.markFile}; exec sleep 0.2`]));
  const claimant = await host.claimant(foundation);
  await until("it runs", async () => (await host.marks()).length === 1);
  await claimant.stop();
  assert.equal((await jobFacts(stack, job)).state, "running", "a claimant that stops leaves it running");
  // Somebody tidies up.
  const kept = join(stack.directory, "host/containers");
  for (const id of await host.containers()) await rename(join(kept, id), join(kept, `.gone-${id}`));
  await host.claimant(foundation);
  const facts = await ended(stack, job);
  assert.deepEqual([facts.state, facts.failure_code], ["failed", "container_lost"]);
  assert.deepEqual(await host.marks(), ["up"]);
});

test("E13: a claimant that was suspended before it started its container finds that it can't", async (t) => {
  const { stack, host, foundation } = await open(t);
  const job = await insertHistorical(stack, imageSpec([`echo ran >> ${host.markFile}`]));
  const resume = Promise.withResolvers<void>();
  const suspended = Promise.withResolvers<void>();
  const refused = Promise.withResolvers<unknown>();
  const zombie = await host.claimant(foundation, {
    containers: {
      ...host.real,
      async start(id) {
        suspended.resolve();
        await resume.promise;
        await host.real.start(id).then(refused.resolve, refused.resolve);
        await host.real.start(id);
      },
    },
  });
  await suspended.promise;
  await ageClaim(stack, job);
  await host.claimant(foundation);
  assert.equal((await ended(stack, job)).state, "succeeded");
  resume.resolve();
  assert.match(String(await refused.promise), /No such container/);
  await zombie.stop();
  assert.deepEqual(await host.marks(), ["ran"]);
});

test("E13: without the command the claimant says so and takes nothing", async (t) => {
  const { stack, host, foundation } = await open(t);
  const job = await insertHistorical(stack, imageSpec(["true"]));
  const env = {
    HOLDFAST_DATABASE_URL: "postgres://nobody@127.0.0.1:1/none",
    HOLDFAST_INSTALLATION: "x",
    HOLDFAST_DIRECT_COMMAND: "no-such-docker",
  };
  const { code, stderr } = await runCommand(["direct-claimant", "--tenant", "acme"], { env });
  assert.equal(code, 2);
  assert.match(stderr, /`no-such-docker` can't be run here \(ENOENT\): HOLDFAST_DIRECT_COMMAND names it/);
  await host.fault("down");
  await assert.rejects(host.claimant(foundation), /version` failed: the daemon does not answer/);
  assert.equal((await jobFacts(stack, job)).state, "queued");
});
