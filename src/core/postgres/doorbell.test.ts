import assert from "node:assert/strict";
import { fork } from "node:child_process";
import { once } from "node:events";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { withClient } from "../../../test/support/database.ts";
import { type Kernel, openKernel } from "../../../test/support/kernel.ts";
import { openProxy } from "../../../test/support/proxy.ts";
import { until } from "../../../test/support/until.ts";
import { type Doorbell, openDoorbell } from "./doorbell.ts";

const root = join(import.meta.dirname, "../../..");

function hear(doorbell: Doorbell): () => number {
  let heard = 0;
  doorbell.onRing(() => {
    heard += 1;
  });
  return () => heard;
}

async function openListening(kernel: Kernel, name: string, settings = kernel.settings) {
  const errors: Error[] = [];
  const doorbell = openDoorbell({ settings, name, onError: (error) => errors.push(error) });
  kernel.after(() => doorbell.close());
  const heard = hear(doorbell);
  // The first connection counts as the end of a gap.
  await until(`${name} listens`, () => heard() > 0);
  return { doorbell, heard, errors };
}

const backends = (kernel: Kernel, name: string) =>
  kernel.ask<{ pid: number }>("select pid from pg_stat_activity where application_name = $1", [
    `${name}/doorbell`,
  ]);

test("W7: a ring is heard at once here and soon by every other process", async (t) => {
  const kernel = await openKernel(t);
  const own = await openListening(kernel, "own");
  const child = fork(join(root, "test/support/doorbell-child.ts"), [JSON.stringify(kernel.settings)], {
    execArgv: [],
  });
  kernel.after(() => child.kill("SIGKILL"));
  let childHeard = 0;
  child.on("message", () => {
    childHeard += 1;
  });
  await until("the other process listens", () => childHeard > 0);

  const [here, there] = [own.heard(), childHeard];
  own.doorbell.ring();
  assert.equal(own.heard(), here + 1);
  await until("the other process hears", () => childHeard > there);

  const [quiet, told] = [own.heard(), childHeard];
  own.doorbell.ringOthers();
  await until("the other process hears what is for others", () => childHeard > told);
  assert.equal(own.heard(), quiet);

  const before = own.heard();
  child.send("ring");
  await until("this process hears the other", () => own.heard() > before);
  child.disconnect();
  await once(child, "exit");
});

test("W7: after its connection broke, a doorbell rings its listeners and works again", async (t) => {
  const kernel = await openKernel(t);
  const [a, b] = [await openListening(kernel, "a"), await openListening(kernel, "b")];
  const heard = b.heard();
  const [broken] = await backends(kernel, "b");
  await kernel.ask("select pg_terminate_backend($1)", [broken?.pid]);
  await until("the gap is rung", () => b.heard() > heard);
  assert.notDeepEqual(await backends(kernel, "b"), [broken]);
  const again = b.heard();
  a.doorbell.ring();
  await until("it hears again", () => b.heard() > again);
  assert.ok(b.errors.length > 0);
});

test("a ring while there is no connection is not lost and throws nothing", async (t) => {
  const kernel = await openKernel(t);
  const [a, b] = [await openListening(kernel, "a"), await openListening(kernel, "b")];
  const heard = b.heard();
  const [broken] = await backends(kernel, "a");
  await kernel.ask("select pg_terminate_backend($1)", [broken?.pid]);
  await until("the loss is noticed", () => a.errors.length > 0);
  a.doorbell.ring();
  await until("the other hears it after all", () => b.heard() > heard);
});

test("a connection that hangs half open is given up for a new one", async (t) => {
  const kernel = await openKernel(t);
  const proxy = await openProxy(kernel, kernel.settings);
  const a = await openListening(kernel, "a", proxy.settings);
  const b = await openListening(kernel, "b");
  const heard = b.heard();
  proxy.freeze();
  a.doorbell.ring();
  await until("the ring comes over a new connection", () => b.heard() > heard);
});

test("to close is no breakage: nothing is told of a ring under way, nor of a connection that is lost meanwhile", async (t) => {
  const kernel = await openKernel(t);
  const proxy = await openProxy(kernel, kernel.settings);
  const ringing = await openListening(kernel, "ringing", proxy.settings);
  const losing = await openListening(kernel, "losing", proxy.settings);
  proxy.delay(1_000);
  ringing.doorbell.ring();
  await ringing.doorbell.close();
  const closed = losing.doorbell.close();
  proxy.drop();
  await closed;
  assert.deepEqual([ringing.errors, losing.errors], [[], []]);
});

test("at most one NOTIFY in five milliseconds, and the last ring is always told", async (t) => {
  const kernel = await openKernel(t);
  const { doorbell } = await openListening(kernel, "a");
  await withClient(kernel.database.superuser, async (client) => {
    let notified = 0;
    client.on("notification", () => {
      notified += 1;
    });
    await client.query("listen holdfast_doorbell");
    const started = performance.now();
    for (let rings = 0; rings < 50; rings += 1) {
      for (let burst = 0; burst < 20; burst += 1) doorbell.ring();
      await new Promise((resolve) => setImmediate(resolve));
    }
    await until("a ring arrives", () => notified > 0);
    const before = notified;
    doorbell.ring();
    await until("the last one arrives", () => notified > before);
    assert.ok(notified <= (performance.now() - started) / 5 + 2, `${notified} notifications`);
  });
});

test("no statement and no function of the schema notifies: it would make commits wait for each other", () => {
  for (const path of globSync(["src/**/*.sql", "migrations/**/*.sql"], { cwd: root })) {
    assert.doesNotMatch(readFileSync(join(root, path), "utf8"), /\bnotify\b/i, path);
  }
});
