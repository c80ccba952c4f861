import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import { rotateDeployment } from "../../src/core/deployment.store.ts";
import { isHoldfastError } from "../../src/core/errors.ts";
import { endIncarnation, registerIncarnation } from "../../src/core/incarnation.store.ts";
import { sweepLedger } from "../../src/core/ledger-sweep.ts";
import { monotonicMs } from "../../src/core/monotonic.ts";
import { startLeaseKeeper } from "../../src/core/postgres/lease-keeper.ts";
import { type Database, transition } from "../../src/core/postgres/transition.ts";
import { supportedSchema } from "../../src/core/schema/version.ts";
import { createTenant } from "../../src/core/tenant.store.ts";
import { instant, seconds } from "../../src/core/time.ts";
import { exitCodes } from "../../src/wire/exit-codes.ts";
import { withClient } from "../support/database.ts";
import { urlOf } from "../support/database-url.ts";
import { openKernel, tenantA } from "../support/kernel.ts";
import { runCommand } from "../support/run-command.ts";
import { testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

const { minimum, maximum } = supportedSchema;
const above = maximum + 1;
const self = { process: "controller", release: "0.0.9", schema: supportedSchema };
const fenced = (error: unknown) => isHoldfastError(error, "deployment_fenced");
const because = { reason: "node-7 is unreachable", cutOff: false };

test("M5: of those who rotate the epoch at once exactly one does, and it is on record who and why", async (t) => {
  const { db, ask } = await openKernel(t);
  const tries = await Promise.allSettled(
    [1, 2, 3, 4].map(() => rotateDeployment(db, { from: 1n, ...because })),
  );
  assert.equal(tries.filter(({ status }) => status === "fulfilled").length, 1);
  for (const one of tries) {
    if (one.status === "rejected")
      assert.ok(fenced(one.reason) || isHoldfastError(one.reason, "conflict"), String(one.reason));
  }
  const actions = await ask(
    "select action, subject, reason, processes, acted_by from holdfast.operator_actions",
  );
  assert.deepEqual(actions, [
    {
      action: "rotate_deployment",
      subject: "1 to 2",
      reason: because.reason,
      processes: null,
      acted_by: "holdfast_app",
    },
  ]);
});

test("M5: rotating and raising a floor refuse while a process is alive that they would leave behind, and name it", async (t) => {
  const { db, ask } = await openKernel(t);
  const id = await registerIncarnation(db, self);
  const named = (error: unknown) => {
    assert.ok(isHoldfastError(error, "processes_alive"), String(error));
    assert.ok(
      error.detail.endsWith(`alive: controller 0.0.9 (schema ${minimum} to ${maximum})`),
      error.detail,
    );
    return true;
  };
  await assert.rejects(rotateDeployment(db, { from: 1n, ...because }), named);
  const raise = `update holdfast.store set writer_floor = ${above}`;
  await assert.rejects(ask(raise), {
    code: "HF018",
    message: `older processes are alive: controller 0.0.9 (schema ${minimum} to ${maximum})`,
  });
  await endIncarnation(db, id);
  assert.equal((await rotateDeployment(db, { from: 1n, ...because })).epoch, 2n);
  await ask(raise);
});

test("M5: a process that was cut off is on record", async (t) => {
  const { db, ask } = await openKernel(t);
  await registerIncarnation(db, self);
  await rotateDeployment(db, { from: 1n, reason: "it does not stop", cutOff: true });
  assert.deepEqual(await ask("select processes from holdfast.operator_actions"), [
    { processes: `controller 0.0.9 (schema ${minimum} to ${maximum})` },
  ]);
});

test("M5: a process registers before a floor rises, and is seen, or after, and is refused", async (t) => {
  const { db, database, blocked } = await openKernel(t);
  await withClient(database.superuser, async (owner) => {
    await owner.query(`begin; update holdfast.store set reader_floor = ${above}, writer_floor = ${above}`);
    const late = assert.rejects(registerIncarnation(db, self), (error) => {
      assert.ok(isHoldfastError(error, "schema_incompatible"), String(error));
      assert.ok(
        error.detail.includes(
          `the floors are ${above} and ${above}, this process understands up to ${maximum}`,
        ),
        error.detail,
      );
      return true;
    });
    await until("the registration waits", blocked);
    await owner.query("commit");
    await late;
  });
});

test("M5: a runtime of an older epoch commits nothing: no transition, no claim, no renewal, no sweep, no sign of life", async (t) => {
  const kernel = await openKernel(t);
  const { db, ask } = kernel;
  await createTenant(db, tenantA);
  const holder = await registerIncarnation(db, self);
  const resource = randomUUID();
  await ask(
    `insert into holdfast.leases (tenant_id, kind, resource_id, due_at, wake_at, holder, epoch)
     values ($1, 'execution', $2, now(), now() + interval '30 s', $3, 7)`,
    [tenantA, resource, holder],
  );
  const [before] = await ask<{ seen_at: Date; wake_at: Date }>(
    "select i.seen_at, l.wake_at from holdfast.incarnations i, holdfast.leases l",
  );
  await rotateDeployment(db, { from: 1n, ...because, cutOff: true });

  const lost: string[] = [];
  const keeper = startLeaseKeeper({
    settings: kernel.settings,
    holder,
    leaseUs: seconds(30),
    renewMs: 1_000,
    onError: () => undefined,
    onLost: (lease) => lost.push(lease.resource),
  });
  kernel.after(() => keeper.close());
  const heldUntilMs = monotonicMs() + 60_000;
  keeper.hold({
    tenant: tenantA,
    kind: "execution",
    resource,
    holder,
    epoch: 7n,
    expiresAt: instant(0n),
    heldUntilMs,
  });
  await until("its lease is lost", () => lost.includes(resource));
  const again = await ask("select i.seen_at, l.wake_at from holdfast.incarnations i, holdfast.leases l");
  assert.deepEqual(again, [before]);

  await assert.rejects(createTenant(db, "later"), fenced);
  await assert.rejects(registerIncarnation(db, self), fenced);
  const kept = { commands: seconds(1), deliveries: seconds(1), changes: seconds(1) };
  await assert.rejects(sweepLedger(db, kept, new AbortController().signal), fenced);
  const newer: Database = { ...db, deploymentEpoch: 2n };
  await registerIncarnation(newer, self);
  await transition(newer, { role: "dispatcher", tenant: null, name: "look" }, () => Promise.resolve());
});

test("M5: a gateway of an older epoch lets nobody in and is not ready", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("gateway");
  const { gateway, token } = await stack.gateway(foundation);
  await rotateDeployment(foundation.db, { from: 1n, ...because, cutOff: true });
  const codes: unknown[] = [];
  for (const path of ["/readyz", "/v1/jobs"]) {
    const reply = await fetch(`${gateway.address}${path}`, { headers: { authorization: `Bearer ${token}` } });
    codes.push([reply.status, ((await reply.json()) as { code: string }).code]);
  }
  assert.deepEqual(codes, [
    [503, "deployment_fenced"],
    [503, "deployment_fenced"],
  ]);
});

test("M2: every program below the floor stops with exit code 10 before it touches a row", async (t) => {
  const { database, ask } = await openKernel(t);
  // Counted now, and not when that session has been idle for a while.
  await ask(
    `update holdfast.store set reader_floor = ${above}, writer_floor = ${above}; select pg_stat_force_next_flush()`,
  );
  const writes = async () =>
    (
      await ask(
        "select sum(n_tup_ins + n_tup_upd + n_tup_del)::int as n from pg_stat_user_tables where schemaname = 'holdfast'",
      )
    )[0];

  const [{ id } = { id: "" }] = await ask<{ id: string }>("select installation_id as id from holdfast.store");
  const env = {
    HOLDFAST_DATABASE_URL: urlOf(database.app),
    HOLDFAST_INSTALLATION: id,
    HOLDFAST_PORT: "0",
    HOLDFAST_BLOB_DIRECTORY: "/nonexistent",
    HOLDFAST_CALLBACK_KEYS_FILE: "/nonexistent",
  };
  const before = await writes();
  for (const words of [
    ["gateway"],
    ["doctor"],
    ["token", "list", "--tenant", "acme"],
    ["drain"],
    ["schema", "status", "--check"],
  ]) {
    const { code, stderr } = await runCommand(words, { env });
    assert.equal(code, exitCodes.schema_incompatible, `${words.join(" ")}: ${stderr}`);
    assert.ok(stderr.includes(`${above}, this release understands up to ${maximum}`), stderr);
  }
  assert.deepEqual(await writes(), before);
  assert.deepEqual(await ask("select from holdfast.incarnations"), []);
});

test("M5: the command rotates only from the epoch that the operator saw", async (t) => {
  const { database } = await openKernel(t);
  const rotate = (from: string) =>
    runCommand(["schema", "rotate-epoch", "--from", from, "--reason", "a rehearsal"], {
      env: { HOLDFAST_DATABASE_URL: urlOf(database.app) },
    });
  assert.equal((await rotate("1")).stdout, "deployment epoch 2\n");
  const again = await rotate("1");
  assert.equal(again.code, exitCodes.conflict);
  assert.match(again.stderr, /the store is at deployment epoch 2, not 1/);
});
