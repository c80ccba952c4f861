import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { ChangeEvent } from "../../src/client/client.ts";
import { isHoldfastError } from "../../src/core/errors.ts";
import { connectDirect } from "../../src/core/postgres/direct.ts";
import { defaultPoolLimits, openPools } from "../../src/core/postgres/pool.ts";
import type { Database } from "../../src/core/postgres/transition.ts";
import { assertMayChange } from "../../src/core/schema/turn.ts";
import { createTenant } from "../../src/core/tenant.store.ts";
import { prepareStore } from "../../src/dev/store.ts";
import { defineWork } from "../../src/work/define.ts";
import { openWork, submit } from "../../src/work/open.ts";
import { legacy } from "../../src/work/policy.ts";
import { createWorker } from "../../src/work/worker.ts";
import { openKernel, tenantA, tenantB } from "../support/kernel.ts";
import { openProxy } from "../support/proxy.ts";
import { shellJob, testStack } from "../support/stack.ts";
import { startStandbyPair } from "../support/standby.ts";
import { until } from "../support/until.ts";

const takesNoWrites = (error: unknown) => {
  assert(isHoldfastError(error, "unavailable"), String(error));
  assert.match(error.detail, /^the database takes no writes: the address leads to a standby/);
  assert.equal(error.retryAfterSeconds, 1);
  return true;
};

test("G13: the address moves to a standby, which is promoted: a controller, a worker and a watch go on, and nothing runs twice", async (t) => {
  const hooks: (() => unknown)[] = [];
  const scope = { after: (hook: () => unknown) => void hooks.push(hook) };
  t.after(async () => {
    for (const hook of hooks.toReversed()) await hook();
  });
  const pair = await startStandbyPair();
  scope.after(() => pair.stop());
  const direct = await prepareStore(pair.primary, "here", () => undefined);
  await pair.synchronous();
  const proxy = await openProxy(scope, direct);
  const owner = { ...pair.primary, host: proxy.settings.host, database: direct.database };
  const app = { ...direct, host: proxy.settings.host };
  const database = { name: direct.database, superuser: owner, owner, app };
  const stack = await testStack(scope, "acme", { database });

  const serving = await stack.foundation("gateway");
  const { gateway, client, token } = await stack.gateway(serving, { scopes: ["*"] });
  await stack.controller(await stack.foundation("controller"));
  const { cursor } = await client.listJobs({ limit: 1 }).page();
  const changes: ChangeEvent[] = [];
  const watching = new AbortController();
  const watched = (async () => {
    for await (const change of client.watch({ after: cursor, signal: watching.signal })) changes.push(change);
  })().catch((error: unknown) => {
    if (!watching.signal.aborted) throw error;
  });
  scope.after(async () => {
    watching.abort();
    await watched;
  });

  // One effect is in the middle of it, and one phase.
  const effects: string[] = [];
  const gate = Promise.withResolvers<void>();
  const charge = defineWork({
    name: "charge",
    version: "1",
    safety: "manual_resolution",
    policy: legacy(),
    async run(_: unknown, { id }) {
      effects.push(id);
      await gate.promise;
    },
  });
  const work = await openWork({ database: app, tenant: stack.tenant, onError: () => undefined });
  scope.after(() => work.close());
  await work.register(charge);
  const worker = await createWorker(work, { works: [charge] });
  scope.after(() => worker.stop());
  const first = await submit(work, charge, {});
  const [ran, go] = [join(stack.directory, "ran"), join(stack.directory, "go")];
  const phase = `echo ran >> ${ran}; until [ -e ${go} ]; do sleep 0.1; done`;
  const job = await client.submitJob(shellJob("moves", [{ run: phase }]));
  await until("both are under way", async () => {
    const text = await readFile(ran, "utf8").catch(() => "");
    return text !== "" && effects.length === 1;
  });

  await pair.crashPrimary();
  proxy.move(pair.standby);
  // The standby answers whoever reads, and refuses what would write.
  await until("reads are answered", () =>
    stack.rows("select 1").then(
      () => true,
      () => false,
    ),
  );
  const request = JSON.stringify(shellJob("refused", [{ run: "true" }]));
  const refused = await until("a submission is refused as what it is", async () => {
    const reply = await fetch(`${gateway.address}/v1/jobs`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${token}`,
        "content-type": "application/json",
        "idempotency-key": "k",
      },
      body: request,
    });
    const problem = (await reply.json()) as { readonly code?: string; readonly detail?: string };
    return /takes no writes/.test(problem.detail ?? "") ? { reply, problem } : null;
  });
  assert.deepEqual(
    [refused.reply.status, refused.problem.code, refused.reply.headers.get("retry-after")],
    [503, "unavailable", "1"],
  );
  await assert.rejects(submit(work, charge, {}), takesNoWrites);
  await assert.rejects(stack.foundation("late"), takesNoWrites);
  const session = await connectDirect(owner, "test");
  await assert.rejects(assertMayChange(session), takesNoWrites);
  await session.end();

  // What the client sends meanwhile is sent again by itself, and carried out once.
  const sent = client.submitJob(shellJob("later", [{ run: "true" }]));
  await pair.promote();
  await writeFile(go, "");
  gate.resolve();
  const later = await sent;
  const second = await until("work is accepted again", () => submit(work, charge, {}).catch(() => null));
  await until("all of it has ended", async () => {
    const jobs = await Promise.all([client.getJob(job.id), client.getJob(later.id)]);
    const left = await stack.rows("select from holdfast.leases_work where resource_id = any($1)", [
      [first.id, second.id],
    ]);
    return jobs.every(({ state }) => state === "succeeded") && left.length === 0;
  });
  assert.equal(await readFile(ran, "utf8"), "ran\n");
  assert.deepEqual(effects, [first.id, second.id]);
  const outcomes = await stack.rows<{ state: string }>(
    "select state from holdfast.work_history where work_id = any($1)",
    [[first.id, second.id]],
  );
  assert.deepEqual(
    outcomes.map(({ state }) => state),
    ["succeeded", "succeeded"],
  );
  const attempts = await stack.rows<{ n: number }>(
    "select count(*)::int4 as n from holdfast.execution_attempts where job_id = any($1)",
    [[job.id, later.id]],
  );
  assert.deepEqual(attempts, [{ n: 2 }]);
  // The watch has missed nothing, and has seen nothing twice.
  const roots = [job.id, later.id];
  const ofThem = () => changes.filter((change) => roots.includes(change.root_id));
  await until("the watch has all of it", async () => {
    const [stored] = await stack.rows<{ n: number }>(
      "select count(*)::int4 as n from holdfast.resource_changes where root_id = any($1)",
      [roots],
    );
    return stored?.n === ofThem().length;
  });
  assert.equal(new Set(changes.map((change) => change.cursor)).size, changes.length);
});

test("G13: a server that has become read-only is refused as that, and its connections are given up", async (t) => {
  const kernel = await openKernel(t);
  const pools = openPools({ settings: kernel.settings, name: "test" });
  kernel.after(() => pools.close());
  const db: Database = { ...kernel.db, pools };
  const { name } = kernel.database;
  await kernel.ask(`alter database ${name} set default_transaction_read_only = on`);
  await assert.rejects(createTenant(db, tenantA), takesNoWrites);
  await kernel.ask(`alter database ${name} reset default_transaction_read_only`);
  // A connection keeps what it was begun with: only a new one can write.
  await createTenant(db, tenantB);
});

test("G13: a connection goes after its time, so that none stays with a server that its address has left", async (t) => {
  const kernel = await openKernel(t);
  const limits = { ...defaultPoolLimits, lifetimeSeconds: 0.2 };
  const pools = openPools({ settings: kernel.settings, name: "test", limits });
  kernel.after(() => pools.close());
  const backend = async () => {
    const { rows } = await pools.of("gateway").query<{ pid: number }>("select pg_backend_pid() as pid");
    return rows[0]?.pid;
  };
  const first = await backend();
  await until("another connection answers", async () => (await backend()) !== first);
});
