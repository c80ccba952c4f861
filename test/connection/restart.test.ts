import assert from "node:assert/strict";
import { test } from "node:test";
import { isHoldfastError } from "../../src/core/errors.ts";
import { brandId, type TenantId } from "../../src/core/ids.ts";
import { registerIncarnation } from "../../src/core/incarnation.store.ts";
import { openDoorbell } from "../../src/core/postgres/doorbell.ts";
import { startLeaseKeeper } from "../../src/core/postgres/lease-keeper.ts";
import { defaultPoolLimits, openPools } from "../../src/core/postgres/pool.ts";
import { type Database, transition } from "../../src/core/postgres/transition.ts";
import { supportedSchema } from "../../src/core/schema/version.ts";
import { createTenant } from "../../src/core/tenant.store.ts";
import { prepareStore } from "../../src/dev/store.ts";
import { startCrashingPostgres } from "../support/crashing-postgres.ts";
import { adHoc, openKernel, tenantA } from "../support/kernel.ts";
import { openProxy } from "../support/proxy.ts";
import { until } from "../support/until.ts";

const self = { process: "test", release: "test", schema: supportedSchema };

test("G13: after the server was killed and started again pools, doorbell and renewals come back by themselves", async (t) => {
  const server = await startCrashingPostgres();
  t.after(() => server.stop());
  const settings = await prepareStore(server.connection, "here", () => undefined);
  let heard = 0;
  const pools = openPools({ settings, name: "test" });
  const doorbell = openDoorbell({ settings, name: "test", onError: () => undefined });
  doorbell.onRing(() => (heard += 1));
  const db: Database = { pools, deploymentEpoch: 1n, committed: () => doorbell.ring() };
  const holder = await registerIncarnation(db, self);
  const keeper = startLeaseKeeper({ settings, holder, renewMs: 1_000, onError: () => undefined });
  t.after(async () => {
    await keeper.close();
    await doorbell.close();
    await pools.close();
  });
  await createTenant(db, "before");
  await until("it renews", () => keeper.lastRenewedAt !== null);

  await server.crash();
  await assert.rejects(createTenant(db, "meanwhile"), (error) => {
    assert.ok(isHoldfastError(error, "unavailable"), String(error));
    assert.equal(error.retryAfterSeconds, 1);
    return true;
  });
  await server.restart();
  const renewed = keeper.lastRenewedAt;
  await until("it commits again", () =>
    createTenant(db, "after").then(
      () => true,
      () => false,
    ),
  );
  await until("it renews again", () => keeper.lastRenewedAt !== renewed);
  const before = heard;
  await until("the doorbell is heard again", () => {
    doorbell.ring();
    return heard > before;
  });
});

test("G13: a connection that breaks in the middle of a transition fails it as unavailable, and the next one works", async (t) => {
  const kernel = await openKernel(t);
  const proxy = await openProxy(kernel, kernel.settings);
  const pools = openPools({ settings: proxy.settings, name: "test" });
  kernel.after(() => pools.close());
  const db: Database = { ...kernel.db, pools };
  const broken = transition(db, { role: "operator", tenant: null, name: "broken" }, async (tx) => {
    proxy.drop();
    await tx.run(adHoc("select 1"), {});
  });
  await assert.rejects(broken, (error) => isHoldfastError(error, "unavailable"));
  await createTenant(db, tenantA);
});

test("G13: a slow way to the server loses no lease, and a half-open one is given up", async (t) => {
  const kernel = await openKernel(t);
  await createTenant(kernel.db, tenantA);
  const proxy = await openProxy(kernel, kernel.settings);
  const holder = await registerIncarnation(kernel.db, self);
  const keeper = startLeaseKeeper({
    settings: proxy.settings,
    holder,
    renewMs: 1_000,
    onError: () => undefined,
  });
  kernel.after(() => keeper.close());
  await until("it renews", () => keeper.lastRenewedAt !== null);
  proxy.delay(100);
  const slow = keeper.lastRenewedAt;
  await until("it renews over the slow way", () => keeper.lastRenewedAt !== slow);
  proxy.delay(0);
  proxy.freeze();
  const frozen = keeper.lastRenewedAt;
  await until("it renews over a new connection", () => keeper.lastRenewedAt !== frozen);
});

test("G13: renewals wait for no pool: they have a connection of their own", async (t) => {
  const kernel = await openKernel(t);
  const limits = { ...defaultPoolLimits, connectionsMax: 1 };
  const pools = openPools({ settings: kernel.settings, name: "test", limits });
  kernel.after(() => pools.close());
  const busy: Database = { ...kernel.db, pools };
  const holder = await registerIncarnation(busy, self);
  const keeper = startLeaseKeeper({
    settings: kernel.settings,
    holder,
    renewMs: 1_000,
    onError: () => undefined,
  });
  kernel.after(() => keeper.close());
  const held = Promise.withResolvers<void>();
  const hog = transition(busy, { role: "dispatcher", tenant: null, name: "hog" }, () => held.promise);
  try {
    await until("it renews", () => keeper.lastRenewedAt !== null);
    const before = keeper.lastRenewedAt;
    await until("it renews while the pool has no connection left", () => keeper.lastRenewedAt !== before);
  } finally {
    held.resolve();
    await hog;
  }
});

test("G13: statements, waits for locks and idle transactions end at their limits", async (t) => {
  const kernel = await openKernel(t);
  const tenant = brandId<TenantId>("acme");
  await createTenant(kernel.db, tenant);
  const within = async (limits: Partial<typeof defaultPoolLimits>, sql: string) => {
    const pools = openPools({
      settings: kernel.settings,
      name: "test",
      limits: { ...defaultPoolLimits, ...limits },
    });
    const client = await pools.of("operator").connect();
    client.on("error", () => undefined);
    try {
      await client.query("begin");
      await client.query(sql);
      return null;
    } catch (error) {
      return error instanceof Error && "code" in error ? error.code : String(error);
    } finally {
      client.release(true);
      await pools.close();
    }
  };
  assert.equal(await within({ statementTimeoutMs: 50 }, "select pg_sleep(60)"), "57014");
  assert.equal(await within({ transactionTimeoutMs: 50 }, "select pg_sleep(60)"), "25P04");
  const lock = "update holdfast.tenants set disabled_at = disabled_at";
  const held = Promise.withResolvers<void>();
  const locked = Promise.withResolvers<void>();
  const holding = transition(kernel.db, { role: "operator", tenant: null, name: "hold" }, async (tx) => {
    await tx.run(adHoc(lock), {});
    locked.resolve();
    await held.promise;
  });
  await locked.promise;
  try {
    assert.equal(await within({ lockTimeoutMs: 50 }, lock), "55P03");
  } finally {
    held.resolve();
    await holding;
  }

  // An idle one is ended by the server, and so are its locks.
  const pools = openPools({
    settings: kernel.settings,
    name: "test",
    limits: { ...defaultPoolLimits, idleInTransactionMs: 50 },
  });
  kernel.after(() => pools.close());
  const idle = await pools.of("operator").connect();
  const ended = new Promise<unknown>((resolve) => idle.once("error", resolve));
  await idle.query("begin");
  await idle.query(lock);
  const error = await ended;
  assert.ok(error instanceof Error && "code" in error && error.code === "25P03", String(error));
  idle.release(true);
});
