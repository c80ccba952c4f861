import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { brandId, type SandboxId, uuidv7 } from "../../src/core/ids.ts";
import type { PrepareRequest, Runtime } from "../../src/core/runtime.port.ts";
import { microseconds, seconds } from "../../src/core/time.ts";
import { sandboxSpecDigest } from "../../src/sandboxes/sandbox.ts";
import { sweepOnce } from "../../src/sandboxes/sweep.ts";
import { type Stack, shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

/** A phase that publishes what it printed, by the helper of the sandbox contract. */
const publish = `
  printf 'hello' > hello.txt
  "$HOLDFAST_NODE" "$HOLDFAST_PHASE_HELPER" upload hello.txt hello.txt
  printf '{"files":[{"name":"hello.txt","bytes":5,"sha256":"%s"}]}' "$(sha256sum hello.txt | cut -d' ' -f1)" > manifest.json
  "$HOLDFAST_NODE" "$HOLDFAST_PHASE_HELPER" artifact hello.txt --manifest manifest.json`;

const quiet = () => undefined;

test("E11 E20: an artifact is removed when its retention ends, and its tombstone stays", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation, { retentionSeconds: 2 });
  const job = await stack.submit(foundation, shellJob("publish", [{ kind: "publish", run: publish }]));
  const digest = createHash("sha256").update("hello").digest("hex");
  const artifact = () =>
    stack
      .rows<{ sha256: string; removed_at: Date | null; kept: string }>(
        "select sha256, removed_at, (retain_until - published_at)::text as kept from holdfast.artifacts where job_id = $1",
        [job],
      )
      .then(([row]) => row);
  const published = await until("published", artifact);
  assert.equal(published.sha256, digest);
  assert.equal(published.kept, "00:00:02");
  const removed = await until("removed", async () =>
    (await artifact())?.removed_at === null ? null : artifact(),
  );
  assert.ok(removed.removed_at !== null);
  const left = await stack.rows("select from holdfast.leases where kind = 'retention' and queue = 'default'");
  assert.equal(left.length, 0);
  const [change] = await stack.rows<{ body: unknown }>(
    "select body from holdfast.resource_changes where operation = 'artifact.removed'",
  );
  assert.deepEqual(change?.body, { artifact: "hello.txt" });
});

function lateObject(stack: Stack, name: string, epoch: bigint): PrepareRequest {
  const spec = {
    command: ["sh", "-c", "echo ran > ../../../ran"],
    env: {},
    secrets: {},
    image: null,
    grace: seconds(1),
    limits: { cpuMillicores: 1000, memoryBytes: 1e9, diskBytes: 1e9 },
  };
  return {
    name,
    installation: stack.installation,
    tenant: stack.tenant,
    sandbox: brandId<SandboxId>(uuidv7()),
    spec,
    specDigest: sandboxSpecDigest(spec),
    epoch,
    privateEnv: {},
    holdLimit: microseconds(120_000_000n),
  };
}

test("E21: an object that no attempt owns is found, confirmed by UID after a grace time, removed and recorded", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  const runtime = stack.runtime();
  const { signal } = new AbortController();
  await stack.rows("select nextval('holdfast.lease_epochs')");
  const { uid } = await runtime.prepare(lateObject(stack, "hf-late-1", 1n), signal);
  const suspects = new Map<string, number>();
  const options = { db: foundation.db, graceMs: 0, log: quiet };
  assert.deepEqual(
    await sweepOnce({ ...options, graceMs: 60_000 }, runtime, suspects, signal),
    [],
    "a first look removes nothing",
  );
  assert.deepEqual(
    await sweepOnce({ ...options, graceMs: 60_000 }, runtime, suspects, signal),
    [],
    "nor one within the grace time",
  );
  await until("removed", async () => (await sweepOnce(options, runtime, suspects, signal)).length === 1);
  assert.equal(await runtime.find("hf-late-1", signal), null);
  const swept = await stack.rows("select name, uid, reason from holdfast.swept_sandboxes");
  assert.deepEqual(swept, [{ name: "hf-late-1", uid, reason: "unknown" }]);
  assert.equal(suspects.size, 0);
});

test("E21: an orphan that can't be removed keeps none of the others here", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  const runtime = stack.runtime();
  const { signal } = new AbortController();
  await stack.rows("select nextval('holdfast.lease_epochs')");
  const names = ["hf-late-3", "hf-late-4", "hf-late-5"];
  for (const name of names) await runtime.prepare(lateObject(stack, name, 1n), signal);
  let stuck = true;
  const stop: Runtime["stop"] = async (ref, epoch, until) => {
    if (stuck && ref.name === "hf-late-4") throw new Error("the world says no");
    await runtime.stop(ref, epoch, until);
  };
  const refusing = new Proxy(runtime, {
    get: (target, name) => {
      const value: unknown = name === "stop" ? stop : Reflect.get(target, name, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const warned = new Set<string>();
  const options = {
    db: foundation.db,
    graceMs: 0,
    log: (level: string, message: string) => void (level === "warn" && warned.add(message)),
  };
  const suspects = new Map<string, number>();
  const left = async () => {
    await sweepOnce(options, refusing, suspects, signal);
    const found = await Promise.all(
      names.map(async (name) => [name, await runtime.find(name, signal)] as const),
    );
    return found.flatMap(([name, uid]) => (uid === null ? [] : [name]));
  };
  await until("the others are gone", async () => (await left()).join() === "hf-late-4");
  assert.deepEqual([...warned], ["an orphan can't be removed yet"]);
  stuck = false;
  await until("it goes too", async () => (await left()).length === 0);
});

test("E21: a store that was restored to an earlier point sweeps nothing", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  const runtime = stack.runtime();
  const { signal } = new AbortController();
  const { uid } = await runtime.prepare(lateObject(stack, "hf-late-2", 1_000_000n), signal);
  const complaints: string[] = [];
  const log = (_level: string, message: string) => void complaints.push(message);
  for (let look = 0; look < 3; look += 1) {
    assert.deepEqual(
      await sweepOnce(
        { db: foundation.db, graceMs: 0, log },
        runtime,
        new Map([["process/hf-late-2/" + uid, 0]]),
        signal,
      ),
      [],
    );
  }
  assert.equal((await runtime.observe({ name: "hf-late-2", uid }, signal)).state, "held");
  assert.match(complaints[0] ?? "", /restored/);
  // Held objects outlive a test: end this one.
  await runtime.stop({ name: "hf-late-2", uid }, 2_000_000n, signal);
  await until(
    "stopped",
    async () => (await runtime.observe({ name: "hf-late-2", uid }, signal)).state === "stopped",
  );
});
