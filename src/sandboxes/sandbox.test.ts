import assert from "node:assert/strict";
import { after, test } from "node:test";
import { acceptedEdges, edgesOf } from "../../test/support/edges.ts";
import { openKernel, tenantA, tenantB } from "../../test/support/kernel.ts";
import { brandId, type SandboxId, uuidv7 } from "../core/ids.ts";
import { transition } from "../core/postgres/transition.ts";
import type { SandboxSpec } from "../core/runtime.port.ts";
import { instant, seconds } from "../core/time.ts";
import { planSandbox } from "./sandbox.store.ts";
import { sandboxName, sandboxSpecDigest, sandboxTransitions } from "./sandbox.ts";

const kernel = await openKernel({ after });
const spec: SandboxSpec = {
  command: ["true"],
  env: {},
  secrets: {},
  image: null,
  grace: seconds(1),
  limits: { cpuMillicores: 1, memoryBytes: 1, diskBytes: 1 },
};

async function plan(owner = uuidv7(), ordinal = 1): Promise<SandboxId> {
  const id = brandId<SandboxId>(uuidv7());
  await transition(kernel.db, { role: "controller", tenant: tenantA, name: "plan" }, (tx) =>
    planSandbox(tx, {
      id,
      owner: { kind: "execution", id: owner },
      step: "compile",
      ordinal,
      name: `hf-${id}`,
      runtime: "process",
      spec,
      deadline: instant(tx.now + 60_000_000n),
    }),
  );
  return id;
}

test("sandboxes: the database accepts exactly the edges of the table", async () => {
  const id = await plan();
  const at = "'2026-01-01T00:00:00Z'";
  const edges = await acceptedEdges(kernel, {
    table: "holdfast.sandbox_attempts",
    where: `sandbox_id = '${id}'`,
    states: Object.keys(sandboxTransitions),
    beside: () => `uid = 'u', released_at = ${at}, stopped_at = ${at}, outcome = 'exited', stop_proof = 'p'`,
  });
  assert.deepEqual(edges, edgesOf(sandboxTransitions));
});

test("E8: the database refuses a second living sandbox of one owner, in whatever states the two are", async () => {
  for (const state of ["planned", "held", "released", "stopping", "stopped", "removed"]) {
    const owner = uuidv7();
    const first = await plan(owner);
    await kernel.ask("begin");
    await kernel.ask("set local session_replication_role = replica");
    await kernel.ask(
      `update holdfast.sandbox_attempts set state = $2, uid = 'u', stopped_at = now(), outcome = 'exited', stop_proof = 'p',
         released_at = now() where sandbox_id = $1`,
      [first, state],
    );
    await kernel.ask("commit");
    const second = plan(owner, 2);
    if (state === "stopped" || state === "removed") await second;
    else await assert.rejects(second, /sandbox_attempts_one_alive/);
  }
});

test("nothing of a step is ever released twice, so nothing runs twice within an attempt", async () => {
  const owner = uuidv7();
  const first = await plan(owner);
  const release = (id: SandboxId) =>
    kernel.ask(
      `with held as (select 1) update holdfast.sandbox_attempts set state = 'released', released_at = now() where sandbox_id = $1`,
      [id],
    );
  const hold = (id: SandboxId) =>
    kernel.ask(
      "update holdfast.sandbox_attempts set state = 'held', uid = 'u', held_at = now() where sandbox_id = $1",
      [id],
    );
  await hold(first);
  await release(first);
  await kernel.ask(
    "update holdfast.sandbox_attempts set state = 'stopped', stopped_at = now(), outcome = 'lost', stop_proof = 'p' where sandbox_id = $1",
    [first],
  );
  const second = await plan(owner, 2);
  await hold(second);
  await assert.rejects(release(second), /sandbox_attempts_one_start/);
});

test("E7: a persisted UID is never replaced, nor taken back", async () => {
  const id = await plan();
  await kernel.ask("update holdfast.sandbox_attempts set state = 'held', uid = 'one' where sandbox_id = $1", [
    id,
  ]);
  for (const uid of ["'two'", "null"]) {
    await assert.rejects(
      kernel.ask(`update holdfast.sandbox_attempts set uid = ${uid} where sandbox_id = $1`, [id]),
      (error) => error instanceof Error && "code" in error && error.code === "HF002",
    );
  }
});

test("the outside name is a function of who owns it, valid everywhere, and no two owners share one", () => {
  const identity = {
    installation: "i",
    tenant: tenantA,
    owner: { kind: "execution", id: uuidv7() },
    step: "a".repeat(32),
    ordinal: 1,
  } as const;
  const name = sandboxName(identity);
  assert.equal(sandboxName({ ...identity }), name);
  assert.match(name, /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);
  const others = [
    { ...identity, ordinal: 2 },
    { ...identity, tenant: tenantB },
    { ...identity, installation: "j" },
    { ...identity, owner: { ...identity.owner, kind: "activation" as const } },
    { ...identity, owner: { ...identity.owner, id: uuidv7() } },
  ];
  assert.equal(new Set([name, ...others.map(sandboxName)]).size, others.length + 1);
});

test("the spec's digest tells whether two specs run the same", () => {
  const digest = sandboxSpecDigest(spec);
  assert.equal(sandboxSpecDigest({ ...spec }), digest);
  for (const changed of [
    { ...spec, command: ["false"] },
    { ...spec, env: { A: "" } },
    { ...spec, grace: seconds(2) },
    { ...spec, secrets: { A: { name: "n", key: "k" } } },
  ]) {
    assert.notEqual(sandboxSpecDigest(changed), digest);
  }
});
