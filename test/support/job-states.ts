import assert from "node:assert/strict";
import { brandId, type SandboxId } from "../../src/core/ids.ts";
import { instant } from "../../src/core/time.ts";
import { claimWaiting } from "../../src/executions/admission.store.ts";
import { completeObject, declareArtifact, promiseObject } from "../../src/executions/report.store.ts";
import { type Operation, operations } from "./job-model.ts";
import { failPhase, perform } from "./job-operations.ts";
import type { JobWorld, StoredJob } from "./job-world.ts";
import { tenantA } from "./kernel.ts";
import { trustingBlobs } from "./stored-life.ts";

/** What leads from a waiting job to a state: operations, and what happens outside of them. */
export type Happening = Operation | "admit one" | "declare" | "fail phase" | "expire" | "expire admission";

const toReleased = ["admit one", "start", "advance", "hold", "release"] as const;
const toFetched = [...toReleased, "pins", "prove", "drain"] as const;
const toPublishing = [...toFetched, "advance", "hold", "release", "declare"] as const;
const toReady = [...toPublishing, "append", "prove", "drain", "advance"] as const;
const toFailing = [...toReleased, "prove", "drain", "fail phase"] as const;

type Ways = Readonly<Record<string, readonly Happening[]>>;

/** States from which transitions start, each by the way that leads there: until something of the job has run. */
export const beginnings: Ways = {
  waiting: [],
  admitted: ["admit one"],
  "its starter died": ["admit one", "expire admission"],
  started: ["admit one", "start"],
  planned: ["admit one", "start", "advance"],
  held: ["admit one", "start", "advance", "hold"],
  released: toReleased,
  pinned: [...toReleased, "pins", "append"],
  "cancelled while it runs": [...toReleased, "pins", "cancel"],
  stopping: [...toReleased, "pins", "cancel", "stop"],
  overdue: [...toReleased, "deadline"],
  "its controller died": [...toReleased, "expire"],
  "taken over": [...toReleased, "expire", "lease"],
  "given back": [...toReleased, "return"],
};

/** And from there to its end. */
export const endings: Ways = {
  stopped: [...toReleased, "pins", "prove"],
  fetched: toFetched,
  publishing: toPublishing,
  "ready to succeed": toReady,
  "ready to fail": toFailing,
  "cancelled and ready": [...toReady, "cancel"],
  succeeded: [...toReady, "finish succeeded"],
  "waiting again": ["admit one", "start", "finish failed"],
  "admitted again": ["admit one", "start", "finish failed", "admit one"],
  "started again": ["admit one", "start", "finish failed", "admit one", "start"],
  failed: ["admit one", "start", "finish failed", "admit one", "start", "finish failed"],
  "failed and removed": [...toFailing, "finish failed", "remove"],
  "cancelled while it waited": ["cancel"],
  "cancelled and removed": [...toFailing, "cancel", "finish failed", "remove"],
};

/** A job in each of these states, to copy from. */
export async function templatesOf(world: JobWorld, ways: Ways): Promise<ReadonlyMap<string, StoredJob>> {
  const templates = new Map<string, StoredJob>();
  for (const [name, way] of Object.entries(ways)) {
    const stored = await reach(world, way).catch((error: unknown) => {
      throw new Error(`no way to: ${name}`, { cause: error });
    });
    templates.set(name, stored);
  }
  return templates;
}

/** Goes there by the real operations, and says so when one of them is refused on the way. */
export async function reach(world: JobWorld, way: readonly Happening[]): Promise<StoredJob> {
  let stored = await world.submit();
  for (const happening of way) {
    await happen(world, stored, happening);
    stored = await world.read(stored.job);
  }
  return stored;
}

async function happen(world: JobWorld, known: StoredJob, happening: Happening): Promise<void> {
  const outside = happenings[happening];
  if (outside !== undefined) return outside(world, known);
  const operation = operations.find((one) => one === happening);
  assert(operation !== undefined, happening);
  const result = await perform(world, world.bench.db, operation, known);
  const fine = ["ok", "started", "taken", "succeeded", "failed", "cancelled"];
  assert(fine.includes(result), `${happening} was refused on the way: ${result}`);
}

type Happen = (world: JobWorld, known: StoredJob) => Promise<void>;

/** What is no operation, or one that takes time. */
const happenings: Partial<Record<Happening, Happen>> = {
  async "admit one"(world, { plan }) {
    const claim = { pool: plan.pool, holder: world.holders.one, limit: 1, leaseUs: world.leaseUs };
    assert.equal((await claimWaiting(world.bench.db, claim)).length, 1, "admit one");
  },
  declare,
  "fail phase": failPhase,
  expire: expireLeases,
  "expire admission": expireLeases,
  async deadline(world, { attempts }) {
    await world.superuser.query("select test.end_time($1)", [attempts.map(({ id }) => id)]);
  },
};

/** As if nobody had renewed them. */
export async function expireLeases(world: JobWorld, { job, attempts }: StoredJob): Promise<void> {
  await world.superuser.query(
    "update holdfast.leases set wake_at = holdfast.ledger_now() where holder is not null and resource_id = any ($1)",
    [[job, ...attempts.map(({ id }) => id)]],
  );
}

/** The publish phase's own sandbox promises, stores and declares the artifact. */
export async function declare(world: JobWorld, known: StoredJob): Promise<void> {
  const sandbox = known.attempts.at(-1)?.sandboxes.at(-1);
  assert(sandbox !== undefined);
  const identity = { tenant: tenantA, sandbox: brandId<SandboxId>(sandbox.id), deadline: instant(0n) };
  const { db } = world.bench;
  const content = { bytes: 3, sha256: "a".repeat(64) };
  await promiseObject(db, trustingBlobs, identity, "site.tar.gz", content);
  await completeObject(db, trustingBlobs, identity, "site.tar.gz", content, new AbortController().signal);
  await declareArtifact(db, identity, { object: "site.tar.gz", files: [] });
}
