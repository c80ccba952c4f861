import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { withClient } from "../../../test/support/database.ts";
import { adHoc, type Kernel, openKernel, tenantA } from "../../../test/support/kernel.ts";
import { until } from "../../../test/support/until.ts";
import { isHoldfastError } from "../errors.ts";
import { assertOutsideTransition } from "../outside.ts";
import { type Transaction, transition, view } from "./transition.ts";

const scope = { role: "gateway", tenant: tenantA, name: "test" } as const;

async function accounts(kernel: Kernel): Promise<void> {
  await kernel.ask(
    "create table public.accounts (name text not null, shelf text not null, amount int not null) partition by list (shelf)",
  );
  await kernel.ask("create table public.accounts_front partition of public.accounts for values in ('front')");
  await kernel.ask("create table public.accounts_back partition of public.accounts for values in ('back')");
  await kernel.ask("insert into public.accounts values ('a', 'front', 0), ('b', 'front', 0)");
  await kernel.ask("grant select, update, insert, delete on public.accounts to holdfast_gateway");
}

const add = adHoc("update public.accounts set amount = amount + 1 where name = $1", ["p1"]);
const addTo = (tx: Transaction, name: string) => tx.run(add, { p1: name });
const amounts = async (kernel: Kernel) =>
  Object.fromEntries(
    (await kernel.ask<{ name: string; amount: number }>("select name, amount from public.accounts")).map(
      ({ name, amount }) => [name, amount],
    ),
  );
for (const isolation of ["repeatable read", "serializable"]) {
  describe(`with ${isolation} as the server's default isolation`, () => {
    const isolate = (kernel: Kernel) =>
      kernel.ask(`alter database ${kernel.database.name} set default_transaction_isolation = '${isolation}'`);

    test("G14: a serialisation failure (40001) runs the whole again, applied exactly once", async (t) => {
      const kernel = await openKernel(t);
      await isolate(kernel);
      await accounts(kernel);
      let runs = 0;
      await withClient(kernel.database.superuser, async (mover) => {
        await mover.query("begin");
        await mover.query("update public.accounts set shelf = 'back' where name = 'b'");
        const done = transition(kernel.db, scope, async (tx) => {
          runs += 1;
          await addTo(tx, "a");
          await addTo(tx, "b");
        });
        await until("the transition waits for the row", kernel.blocked);
        // The row leaves the partition in which the transition waits for it: 40001 also under READ COMMITTED.
        await mover.query("commit");
        await done;
      });
      assert.equal(runs, 2);
      assert.deepEqual(await amounts(kernel), { a: 1, b: 1 });
      assert.equal(kernel.commits(), 1);
    });

    test("G14: transitions are READ COMMITTED, so many on one row all apply without a failure", async (t) => {
      const kernel = await openKernel(t);
      await isolate(kernel);
      await accounts(kernel);
      let runs = 0;
      const writers = Array.from({ length: 20 }, () =>
        transition(kernel.db, scope, async (tx) => {
          runs += 1;
          await addTo(tx, "a");
        }),
      );
      await Promise.all(writers);
      assert.equal((await amounts(kernel)).a, 20);
      assert.equal(runs, 20);
    });
  });
}

test("G14: a deadlock (40P01) runs the whole again, applied exactly once", async (t) => {
  const kernel = await openKernel(t);
  await kernel.ask(`alter database ${kernel.database.name} set deadlock_timeout = '50ms'`);
  await accounts(kernel);
  const first = new Set<string>();
  let bothHaveOne = () => {};
  const meeting = new Promise<void>((resolve) => {
    bothHaveOne = resolve;
  });
  let runs = 0;
  const crossing = (from: string, to: string) =>
    transition(kernel.db, scope, async (tx) => {
      runs += 1;
      await addTo(tx, from);
      first.add(from);
      if (first.size === 2) bothHaveOne();
      await meeting;
      await addTo(tx, to);
    });
  await Promise.all([crossing("a", "b"), crossing("b", "a")]);
  assert.equal(runs, 3);
  assert.deepEqual(await amounts(kernel), { a: 2, b: 2 });
});

test("G14: what fails every time is given up after a bounded number of tries", async (t) => {
  const kernel = await openKernel(t);
  let runs = 0;
  await assert.rejects(
    transition(kernel.db, scope, async (tx) => {
      runs += 1;
      await tx.run(adHoc("do $$ begin raise sqlstate '40001'; end $$"), {});
    }),
    (error) => isHoldfastError(error, "unavailable"),
  );
  assert.equal(runs, 6);
  assert.equal(kernel.commits(), 0);
});

test("S10: an adapter that is called inside a transition or a view throws, and outside it does not", async (t) => {
  const kernel = await openKernel(t);
  const adapter = async () => assertOutsideTransition("the runtime");
  await assert.rejects(transition(kernel.db, scope, adapter), /the runtime was called while .* \(S10\)/);
  await assert.rejects(view(kernel.db, scope, adapter), /S10/);
  // Also from what the body merely started.
  await assert.rejects(
    transition(kernel.db, scope, () => delay(1).then(adapter)),
    /S10/,
  );
  await transition(kernel.db, scope, async () => undefined);
  await adapter();
});

test("a transition whose body swallowed a failed statement does not look committed", async (t) => {
  const kernel = await openKernel(t);
  await accounts(kernel);
  await assert.rejects(
    transition(kernel.db, scope, async (tx) => {
      await addTo(tx, "a");
      await tx.run(adHoc("select 1 / 0"), {}).catch(() => undefined);
    }),
    /went on after a statement had failed/,
  );
  assert.deepEqual(await amounts(kernel), { a: 0, b: 0 });
  assert.equal(kernel.commits(), 0);
});

test("a statement that comes after the end of its transaction never reaches the connection", async (t) => {
  const kernel = await openKernel(t);
  await accounts(kernel);
  let late: Transaction | undefined;
  await transition(kernel.db, scope, async (tx) => {
    late = tx;
  });
  assert.ok(late);
  await assert.rejects(addTo(late, "a"), /after the end of its transaction/);
  assert.equal((await amounts(kernel)).a, 0);
});

test("HF004: a process of another deployment epoch writes nothing", async (t) => {
  const kernel = await openKernel(t);
  let ran = false;
  await assert.rejects(
    transition({ ...kernel.db, deploymentEpoch: 2n }, scope, async () => {
      ran = true;
    }),
    (error) => isHoldfastError(error, "deployment_fenced"),
  );
  assert.equal(ran, false);
});

test("a connection that is lost inside a transition fails it, and the next one gets a new connection", async (t) => {
  const kernel = await openKernel(t);
  await accounts(kernel);
  await assert.rejects(
    transition(kernel.db, scope, async (tx) => {
      const [backend] = await tx.run(adHoc<{ pid: number }>("select pg_backend_pid() as pid"), {});
      await kernel.ask("select pg_terminate_backend($1)", [backend?.pid]);
      await addTo(tx, "a");
    }),
    (error) => isHoldfastError(error, "unavailable"),
  );
  await transition(kernel.db, scope, (tx) => addTo(tx, "a"));
  assert.equal((await amounts(kernel)).a, 1);
});
