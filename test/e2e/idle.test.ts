import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import { directoryBlobs } from "../../src/blobs/directory/directory-blobs.ts";
import { seconds } from "../../src/core/time.ts";
import { controllerKinds, openController } from "../../src/main/controller.ts";
import { openGateway } from "../../src/main/gateway.ts";
import { openFoundation } from "../../src/main/process.ts";
import { processRuntime } from "../../src/runtimes/process/process-runtime.ts";
import { testDatabase, withClient } from "../support/database.ts";
import { openProxy } from "../support/proxy.ts";

/** Not a minute, so that tests stay short: long enough for every loop to come round twice. */
const idleMs = 20_000;

test("an idle process of everything asks the database at most once a second", async (t) => {
  const database = await testDatabase(t);
  const directory = await mkdtemp(join(tmpdir(), "hf-idle-"));
  t.after(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  const proxy = await openProxy(t, database.app);
  const { rows } = await withClient(database.superuser, (client) =>
    client.query<{ installation_id: string }>("select installation_id from holdfast.store"),
  );
  const installation = rows[0]?.installation_id ?? "";
  const log = pino({ level: "silent" });

  // As `dev` composes it, with its settings.
  const foundation = await openFoundation({
    settings: proxy.settings,
    process: "dev",
    release: "test",
    installation,
    kinds: controllerKinds,
    log,
  });
  t.after(() => foundation.close());
  const blobs = directoryBlobs({
    directory: join(directory, "blobs"),
    publicUrl: () => "http://127.0.0.1",
    keys: [Buffer.alloc(32, 1)],
  });
  const common = { host: "127.0.0.1", port: 0, queueMax: 1000, blobs, log };
  const controller = await openController(foundation, {
    ...common,
    installation,
    runtime: processRuntime({
      directory: join(directory, "sandboxes"),
      installation,
      secretsDirectory: join(directory, "secrets"),
    }),
    beside: blobs.handle,
    callback: { host: "127.0.0.1", port: 0, url: null, keys: [{ id: "k1", key: Buffer.alloc(32, 2) }] },
    retention: seconds(3600),
    logBytesMax: 1_048_576n,
    logRetention: seconds(3600),
    attemptsMax: 50,
    runsMax: 32,
    sessionsMax: 100,
  });
  const gateway = await openGateway(foundation, { ...common, release: "test" });
  t.after(async () => {
    await gateway.close();
    await controller.close();
  });

  await quiet(proxy.queries);
  const before = proxy.queries();
  const began = performance.now();
  await delay(idleMs);
  const perSecond = (proxy.queries() - before) / ((performance.now() - began) / 1000);
  t.diagnostic(`${perSecond.toFixed(2)} queries a second over ${idleMs / 1000} s`);
  assert.ok(perSecond > 0, "it does look");
  assert.ok(perSecond <= 1, `${perSecond} queries a second`);
});

/** What it does once at its start is over when it asked at most once within a second. */
async function quiet(queries: () => number): Promise<void> {
  for (let tries = 0; tries < 20; tries += 1) {
    const before = queries();
    await delay(1_000);
    if (queries() - before <= 1) return;
  }
  assert.fail("it never becomes idle");
}
