import assert from "node:assert/strict";
import { after, test } from "node:test";
import { submission } from "../../test/support/gateway.ts";
import { adHoc, openKernel, tenantA } from "../../test/support/kernel.ts";
import { jobView, submitJob } from "../executions/job.store.ts";
import { runCommand } from "./command.store.ts";
import { type CommandRequest, fingerprintOf } from "./command.ts";
import { type Transaction, transition } from "./postgres/transition.ts";
import { createPrincipal, createTenant } from "./tenant.store.ts";

const kernel = await openKernel({ after });
await createTenant(kernel.db, tenantA);
const principal = await createPrincipal(kernel.db, { tenant: tenantA, name: "tester" });

const request = (key: string | null): CommandRequest => ({
  principal,
  key,
  operation: "jobs.submit",
  target: "/v1/jobs",
  fingerprint: fingerprintOf({
    schema: "test",
    operation: "jobs.submit",
    target: "/v1/jobs",
    body: submission(),
    preconditions: { if_match: null, if_none_match: null },
  }),
  requestId: null,
});

type Around = (tx: Transaction) => Transaction;

function submit(key: string, around: Around = (tx) => tx) {
  return transition(kernel.db, { role: "gateway", tenant: tenantA, name: "submit" }, async (tx) => {
    const watched = around(tx);
    return runCommand(watched, request(key), async () => {
      const job = await submitJob(watched, { submission: submission(), queueMax: 100 });
      return { status: 201, body: jobView(job), etag: null };
    });
  });
}

/** Lets `count` statements run, then does something else in place of the next. */
function interrupt(count: number, fault: (tx: Transaction) => Promise<void>): Around {
  let run = 0;
  return (tx) => ({
    now: tx.now,
    run: async (statement, params) => {
      run += 1;
      const result = await tx.run(statement, params);
      if (run === count) await fault(tx);
      return result;
    },
  });
}

async function statementsOf(key: string): Promise<number> {
  let count = 0;
  await submit(key, (tx) => ({
    now: tx.now,
    run: (statement, params) => {
      count += 1;
      return tx.run(statement, params);
    },
  }));
  return count;
}

const everything = () =>
  kernel.ask(
    `select (select count(*)::int from holdfast.commands) as commands, (select count(*)::int from holdfast.jobs) as jobs,
       (select count(*)::int from holdfast.job_specs) as specs, (select count(*)::int from holdfast.leases) as leases,
       (select count(*)::int from holdfast.resource_changes) as changes`,
  );
const terminate = adHoc<never>("select pg_terminate_backend(pg_backend_pid())");

test("G2: a fault after any statement leaves neither command, intent, change nor lease row", async () => {
  const none = [{ commands: 0, jobs: 0, specs: 0, leases: 0, changes: 0 }];
  const faults: readonly ((tx: Transaction) => Promise<void>)[] = [
    () => Promise.reject(new Error("fault")),
    // The connection is lost: nothing that ran before comes back by itself.
    async (tx) => {
      await tx.run(terminate, {});
    },
  ];
  // How many there are: a run that is given up after its last one.
  let total = 0;
  await assert.rejects(
    submit("count", (tx) => ({
      now: tx.now,
      run: async (statement, params) => {
        total += 1;
        const result = await tx.run(statement, params);
        if (statement.name === "command.answerCommand") throw new Error("fault");
        return result;
      },
    })),
  );
  assert.ok(total >= 8, String(total));
  for (const fault of faults) {
    for (let at = 1; at <= total; at += 1) {
      await assert.rejects(submit(`fault-${at}`, interrupt(at, fault)));
      assert.deepEqual(await everything(), none, `after statement ${at}`);
    }
  }
  assert.equal(await statementsOf("whole"), total);
  assert.deepEqual(await everything(), [{ commands: 1, jobs: 1, specs: 1, leases: 1, changes: 1 }]);
});

test("G14: a transaction that PostgreSQL gives up with 40001 or 40P01 runs again as a whole, and applies once", async () => {
  for (const state of ["40001", "40P01"]) {
    const raise = adHoc<never>(`do $$ begin raise exception using errcode = '${state}'; end $$`);
    let tries = 0;
    const key = `again-${state}`;
    const answer = await submit(key, (tx) => {
      tries += 1;
      return interrupt(5, async (open) => {
        if (tries < 3) await open.run(raise, {});
      })(tx);
    });
    assert.equal(tries, 3);
    assert.equal(answer.replayed, false);
    const stored = await kernel.ask("select from holdfast.commands where idempotency_key = $1", [key]);
    assert.equal(stored.length, 1);
    assert.equal((await submit(key)).replayed, true);
  }
});

test("G3: the answer that is stored is the one that was given", async () => {
  const first = await submit("stored");
  const again = await submit("stored");
  assert.deepEqual({ ...again, replayed: false }, first);
});
