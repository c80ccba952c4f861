import assert from "node:assert/strict";
import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { JobId } from "../../src/core/ids.ts";
import { transition } from "../../src/core/postgres/transition.ts";
import type { Runtime } from "../../src/core/runtime.port.ts";
import { cancelJob } from "../../src/executions/job.store.ts";
import type { Foundation } from "../../src/main/process.ts";
import type { JobSubmission, LogLine } from "../../src/wire/job.ts";
import { type Stack, shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

interface End {
  readonly state: string;
  readonly code: string | null;
  readonly message: string | null;
  readonly attempts: number;
}

/** Finished, and everything of it cleaned. */
async function ended(stack: Stack, job: JobId): Promise<End> {
  return await until(
    `the end of ${job}`,
    async () => {
      const [row] = await stack.rows<End & { done: boolean }>(
        `select j.state, j.failure_code as code, j.failure_message as message,
         (select count(*)::int from holdfast.execution_attempts a where a.job_id = j.job_id) as attempts,
         j.finished_at is not null and not exists (
           select from holdfast.execution_attempts a where a.job_id = j.job_id and a.state <> 'cleaned') as done
       from holdfast.jobs j where j.job_id = $1`,
        [job],
      );
      if (row === undefined || !row.done) return null;
      const { done: _, ...end } = row;
      return end;
    },
    60_000,
  );
}

type Output = (job: JobId, stream?: LogLine["stream"]) => Promise<string[]>;

/** The lines that it has printed, as whoever asks the API gets them. */
async function outputOf(stack: Stack, foundation: Foundation): Promise<Output> {
  const { client } = await stack.gateway(foundation);
  return async (job, stream = "stdout") => {
    const texts: string[] = [];
    for await (const line of client.logs(job)) if (line.stream === stream) texts.push(line.text);
    return texts;
  };
}

function cancel(foundation: Foundation, stack: Stack, job: JobId): Promise<unknown> {
  return transition(foundation.db, { role: "gateway", tenant: stack.tenant, name: "cancel" }, (tx) =>
    cancelJob(tx, { job, reason: "not needed" }),
  );
}

async function running(output: Output, job: JobId, text: string): Promise<void> {
  await until(`the line ${text}`, async () => (await output(job)).includes(text));
}

/** Nothing is left that holds anything. */
async function assertSettled(stack: Stack): Promise<void> {
  const [row] = await stack.rows(
    `select (select count(*)::int from holdfast.slots where attempt_id is not null) as slots,
       (select count(*)::int from holdfast.leases where kind in ('execution', 'admission')) as leases,
       (select count(*)::int from holdfast.sandbox_attempts where state <> 'removed') as sandboxes`,
  );
  assert.deepEqual(row, { slots: 0, leases: 0, sandboxes: 0 });
  const left = await readdir(join(stack.directory, "sandboxes"), { withFileTypes: true });
  assert.deepEqual(
    left.filter(({ name }) => name.startsWith("hf-")),
    [],
  );
}

const longPath = `/nowhere/${"x".repeat(200)}/${"y".repeat(200)}/${"z".repeat(200)}/${"w".repeat(200)}/${"v".repeat(200)}`;

test("E8 E10 E12 E14 E15: jobs that go wrong in every way end, say why, and leave nothing behind", async (t) => {
  const stack = await testStack(t);
  await stack.rows(
    "insert into holdfast.slots (pool, slot) select 'default', n from generate_series(3, 6) n",
  );
  await mkdir(join(stack.directory, "secrets", "s"), { recursive: true });
  await writeFile(join(stack.directory, "secrets", "s", "key"), "open-sesame-42");
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation);
  const output = await outputOf(stack, foundation);
  const submit = (job: JobSubmission) => stack.submit(foundation, job);
  const withPhase = (name: string, phase: Partial<JobSubmission["spec"]["phases"][number]>, spec = {}) => {
    const job = shellJob(name, [{ run: "true" }], spec);
    return { ...job, spec: { ...job.spec, phases: job.spec.phases.map((one) => ({ ...one, ...phase })) } };
  };
  const jobs = {
    missing: await submit(withPhase("missing", { command: [longPath] })),
    seven: await submit(shellJob("seven", [{ run: "echo before; exit 7" }, { run: "echo never" }])),
    signal: await submit(shellJob("signal", [{ run: "kill -9 $$" }])),
    late: await submit(shellJob("late", [{ run: "sleep 300" }], { deadline: "2s" })),
    stubborn: await submit(
      shellJob("stubborn", [{ run: "trap '' TERM; while :; do sleep 1; done" }], { deadline: "2s" }),
    ),
    daemon: await submit(
      shellJob("daemon", [{ run: "(trap '' HUP TERM; exec sleep 300) & echo left" }, { run: "echo next" }]),
    ),
    twice: await submit(shellJob("twice", [{ run: "echo try; exit 1" }], { attempts: 2 })),
    lines: await submit(
      shellJob("lines", [{ run: "i=0; while [ $i -lt 2000 ]; do echo line-$i; i=$((i+1)); done" }]),
    ),
    secret: await submit(
      withPhase("secret", {
        command: [
          "sh",
          "-c",
          'echo "a $PASSWORD b"; echo "t $HOLDFAST_TOKEN"; printf "\\000\\377c\\n"; printf %s "$PASSWORD" >&2',
        ],
        secrets: { PASSWORD: { name: "s", key: "key" } },
      }),
    ),
    huge: await submit(shellJob("huge", [{ run: "head -c 10000000 /dev/zero | tr '\\0' x; echo end" }])),
  };
  const ends = Object.fromEntries(
    await Promise.all(
      Object.entries(jobs).map(async ([name, job]) => [name, await ended(stack, job)] as const),
    ),
  ) as Record<keyof typeof jobs, End>;

  const codes = Object.fromEntries(
    Object.entries(ends).map(([name, { state, code }]) => [name, code ?? state]),
  );
  assert.deepEqual(codes, {
    missing: "start_failed",
    seven: "phase_failed",
    signal: "phase_failed",
    late: "deadline_exceeded",
    stubborn: "deadline_exceeded",
    daemon: "succeeded",
    twice: "phase_failed",
    lines: "succeeded",
    secret: "succeeded",
    huge: "succeeded",
  });
  assert.match(ends.seven.message ?? "", /7/);
  assert.match(ends.signal.message ?? "", /KILL|signal 9/i);
  assert.deepEqual(await output(jobs.seven), ["before"]);
  assert.equal(ends.twice.attempts, 2);
  assert.deepEqual(await output(jobs.twice), ["try", "try"]);
  assert.deepEqual(await output(jobs.daemon), ["left", "next"]);
  const everyLine = Array.from({ length: 2000 }, (_, n) => `line-${n}`);
  assert.deepEqual(await output(jobs.lines), everyLine, "in order, once each");
  assert.deepEqual(await output(jobs.secret), ["a *** b", "t ***", "\u2400\ufffdc"]);
  assert.deepEqual(await output(jobs.secret, "stderr"), ["***"]);
  const huge = (await output(jobs.huge)).join("");
  assert.match(huge, /^x+$/);
  assert.ok(huge.length <= 1_048_576 && huge.length > 900_000, String(huge.length));
  const [mark, ...more] = await output(jobs.huge, "system");
  assert.match(mark ?? "", /not kept/);
  assert.deepEqual(more, []);
  // No sandbox of a phase was released twice.
  const starts = await stack.rows(
    "select owner_id, step from holdfast.sandbox_attempts where released_at is not null group by 1, 2 having count(*) > 1",
  );
  assert.deepEqual(starts, []);
  await assertSettled(stack);
});

/** A runtime that tells of each call before it is made. */
function spiedOn(runtime: Runtime, before: (call: keyof Runtime, name: string) => Promise<void>): Runtime {
  return new Proxy(runtime, {
    get(target, property) {
      const value: unknown = Reflect.get(target, property);
      if (typeof value !== "function") return value;
      const method = (value as (...args: unknown[]) => unknown).bind(target);
      if (!["prepare", "release", "stop", "remove", "observe"].includes(String(property))) return method;
      return async (...args: unknown[]) => {
        const [first] = args;
        await before(
          property as keyof Runtime,
          typeof first === "object" && first !== null && "name" in first ? String(first.name) : "",
        );
        return method(...args);
      };
    },
  });
}

test("E1 S10: plan, deadline and the sandbox's name are committed before anything is created outside", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  const calls = new Set<string>();
  const runtime = spiedOn(stack.runtime(), async (call, name) => {
    calls.add(call);
    if (call !== "prepare" && call !== "release") return;
    const [row] = await stack.rows(
      `select s.state, s.uid is not null as uid, a.plan is not null and a.plan_digest is not null as planned,
         a.deadline > now() as in_time, (select count(*)::int from holdfast.slots where attempt_id = a.attempt_id) as slots
       from holdfast.sandbox_attempts s join holdfast.execution_attempts a on a.attempt_id = s.owner_id where s.name = $1`,
      [name],
    );
    const state = call === "prepare" ? { state: "planned", uid: false } : { state: "released", uid: true };
    assert.deepEqual(row, { ...state, planned: true, in_time: true, slots: 1 });
  });
  await stack.controller(foundation, { runtime });
  assert.equal(calls.size, 0);
  const job = await stack.submit(foundation, shellJob("one", [{ run: "echo hello" }]));
  assert.equal((await ended(stack, job)).state, "succeeded");
  assert.ok(calls.has("prepare") && calls.has("remove"));
});

test("E10 G8: a job is cancelled while it waits, is held, runs, or is between two phases", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  const when = new Map<string, () => Promise<unknown>>();
  const runtime = spiedOn(stack.runtime(), async (call, name) => {
    const key = `${call} ${name.replace(/-[0-9a-f]{20}$/, "")}`;
    const act = when.get(key);
    when.delete(key);
    await act?.();
  });
  await stack.controller(foundation, { runtime });
  const output = await outputOf(stack, foundation);
  const end = async (job: JobId) => {
    const { state, code } = await ended(stack, job);
    return [state, code];
  };
  const released = (job: JobId) =>
    stack.rows(
      `select s.step from holdfast.sandbox_attempts s join holdfast.execution_attempts a on a.attempt_id = s.owner_id
       where a.job_id = $1 and s.released_at is not null`,
      [job],
    );
  const cancelling = (job: () => JobId) => () => cancel(foundation, stack, job());

  // Held: the request comes while the object is being made.
  let held: JobId | undefined;
  const theHeld = () => held ?? assert.fail("not submitted yet");
  when.set("prepare hf-phase-1", async () => {
    await until("submitted", () => held !== undefined);
    await cancelling(theHeld)();
  });
  held = await stack.submit(foundation, shellJob("held", [{ run: "echo never" }]));
  assert.deepEqual(await end(held), ["cancelled", null]);
  assert.deepEqual(await released(held), []);
  assert.deepEqual(await output(held), []);

  // Between: the first phase has ended, the second is not begun.
  const between = await stack.submit(
    foundation,
    shellJob("between", [{ run: "echo one; while [ ! -e go ]; do sleep 0.05; done" }, { run: "echo never" }]),
  );
  await running(output, between, "one");
  when.set(
    "observe hf-phase-1",
    cancelling(() => between),
  );
  await letGo(stack);
  assert.deepEqual(await end(between), ["cancelled", null]);
  assert.deepEqual(await released(between), [{ step: "phase-1" }]);

  // Running, and waiting behind it.
  const first = await stack.submit(foundation, shellJob("running", [{ run: "echo started; sleep 300" }]));
  const second = await stack.submit(
    foundation,
    shellJob("running-too", [{ run: "echo started; sleep 300" }]),
  );
  await running(output, first, "started");
  await running(output, second, "started");
  const waiting = await stack.submit(foundation, shellJob("waiting", [{ run: "echo never" }]));
  await cancel(foundation, stack, waiting);
  assert.deepEqual(await stack.rows("select state from holdfast.jobs where job_id = $1", [waiting]), [
    { state: "cancelled" },
  ]);
  await Promise.all([
    cancel(foundation, stack, first),
    cancel(foundation, stack, second),
    cancel(foundation, stack, second),
  ]);
  assert.deepEqual(await Promise.all([end(first), end(second)]), [
    ["cancelled", null],
    ["cancelled", null],
  ]);
  assert.deepEqual(await end(waiting), ["cancelled", null]);
  await assertSettled(stack);
});

/** Phases that wait for a file `go` in their working directory go on. */
async function letGo(stack: Stack): Promise<void> {
  const root = join(stack.directory, "sandboxes");
  for (const entry of await readdir(root, { recursive: true, withFileTypes: true })) {
    if (entry.isDirectory() && entry.name === "work")
      await writeFile(join(entry.parentPath, entry.name, "go"), "");
  }
}

test("E5 E16: a controller that is stopped hands over at once, and nothing is started again", async (t) => {
  const stack = await testStack(t);
  const [one, two] = [await stack.foundation("one"), await stack.foundation("two")];
  const first = await stack.controller(one);
  const output = await outputOf(stack, two);
  const job = await stack.submit(
    one,
    shellJob("handed", [{ run: "echo started; sleep 1; echo still; sleep 1; echo done" }]),
  );
  await running(output, job, "started");
  const [before] = await stack.rows<{ epoch: bigint }>(
    "select epoch from holdfast.leases where kind = 'execution'",
  );
  await first.close();
  const [free] = await stack.rows(
    "select holder, wake_at <= now() as due from holdfast.leases where kind = 'execution'",
  );
  assert.deepEqual(free, { holder: null, due: true });
  await stack.controller(two);
  const [after] = await until(
    "taken over, long before the lease time",
    async () => {
      const rows = await stack.rows<{ epoch: bigint }>(
        "select epoch from holdfast.leases where kind = 'execution' and holder = $1",
        [two.holder],
      );
      return rows.length === 1 ? rows : null;
    },
    5_000,
  );
  assert.ok(before && after && Number(after.epoch) > Number(before.epoch));
  assert.equal((await ended(stack, job)).state, "succeeded");
  assert.deepEqual(await output(job), ["started", "still", "done"]);
  const rows = await stack.rows("select step from holdfast.sandbox_attempts");
  assert.deepEqual(rows, [{ step: "phase-1" }]);
});

const publish =
  'h() { "$HOLDFAST_NODE" "$HOLDFAST_PHASE_HELPER" "$@"; }; printf bytes > f; printf \'{"files":[]}\' > m.json; ' +
  "h upload site f && h artifact site --manifest m.json && echo declared; while [ ! -e go ]; do sleep 0.05; done";

test("E20: an artifact whose bytes are altered or gone by the end is not published", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation);
  const output = await outputOf(stack, foundation);
  const blobs = async () => {
    const entries = await readdir(join(stack.directory, "blobs"), { recursive: true, withFileTypes: true });
    return entries
      .filter((entry) => entry.isFile() && entry.name.includes("site"))
      .map((entry) => join(entry.parentPath, entry.name));
  };
  for (const [what, spoil] of [
    ["altered", (path: string) => writeFile(path, "BYTES")],
    ["gone", (path: string) => rm(path)],
    ["as promised", async () => undefined],
  ] as const) {
    const job = await stack.submit(foundation, shellJob("publish", [{ kind: "publish", run: publish }]));
    await running(output, job, "declared");
    const found = await blobs();
    const mine = found.filter((path) => path.includes(job));
    assert.equal(mine.length, 1, found.join());
    await spoil(mine[0] ?? "");
    await letGo(stack);
    const { state, code } = await ended(stack, job);
    const published = await stack.rows("select name from holdfast.artifacts where job_id = $1", [job]);
    if (what === "as promised")
      assert.deepEqual([state, code, published], ["succeeded", null, [{ name: "site" }]]);
    else assert.deepEqual([state, code, published], ["failed", "artifact_invalid", []], what);
  }
});

test("E2: a job that can't be started is not tried at once again and again, and holds nobody up", async (t) => {
  const stack = await testStack(t, "acme", { invariants: false });
  const foundation = await stack.foundation("controller");
  await stack.rows("delete from holdfast.slots where slot = 2");
  await stack.rows(
    `create function public.refuse() returns trigger language plpgsql as $$ begin raise exception 'broken'; end $$`,
  );
  await stack.rows(
    `create trigger broken before update on holdfast.jobs for each row
     when (new.name = 'broken' and new.state = 'running') execute function public.refuse()`,
  );
  const broken = await stack.submit(foundation, shellJob("broken", [{ run: "true" }]));
  const behind = await stack.submit(foundation, shellJob("behind", [{ run: "true" }]));
  await stack.controller(foundation);
  assert.equal((await ended(stack, behind)).state, "succeeded");
  const [row] = await stack.rows<{ epoch: string; later: boolean }>(
    "select epoch::text, wake_at > created_at + interval '9 seconds' as later from holdfast.leases join holdfast.jobs on job_id = resource_id where resource_id = $1",
    [broken],
  );
  assert.ok(row?.later, "it waits for a while");
  const [drawn] = await stack.rows<{ epochs: number }>(
    "select last_value::int as epochs from holdfast.lease_epochs",
  );
  assert.ok((drawn?.epochs ?? 0) < 10, `${drawn?.epochs} epochs were drawn for two jobs`);
  // Mended, it is started.
  await stack.rows("drop trigger broken on holdfast.jobs");
  assert.equal((await ended(stack, broken)).state, "succeeded");
});
