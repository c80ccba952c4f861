import assert from "node:assert/strict";
import { after, test } from "node:test";
import { brandId, type TenantId, uuidv7 } from "../../src/core/ids.ts";
import { createTenant, createToken } from "../../src/core/tenant.store.ts";
import type { GrantedScope } from "../../src/core/tenant.ts";
import { formatInstant, instant, seconds } from "../../src/core/time.ts";
import { apiRoutes } from "../../src/main/api.ts";
import { examine } from "../../src/main/doctor.ts";
import type { CommandView } from "../../src/wire/command.ts";
import type {
  WorkDetail,
  WorkReceipt,
  WorkReceipts,
  WorkVersionView,
  WorkView,
} from "../../src/wire/work.ts";
import { defineWork } from "../../src/work/define.ts";
import { legacy } from "../../src/work/policy.ts";
import { batchMax, prepared, submitAlone } from "../../src/work/submit.ts";
import { registerVersion } from "../../src/work/version.store.ts";
import { openEvents } from "../support/event-stream.ts";
import { type Caller, noBlobs } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";
import { until } from "../support/until.ts";
import { openWorkApi } from "../support/work-api.ts";

const api = await openWorkApi({ after });
const { bench, clock, charge } = api;
const { a, b, call, kernel } = bench;
const detail = async (id: string) => (await api.get(id)).json<WorkDetail>();
const plain = defineWork({
  name: "plain",
  version: "1",
  safety: "idempotent",
  policy: legacy(),
  run: () => null,
});
await registerVersion(kernel.db, plain);

test("W12 W4 W6 W11: an inspection tells each planned attempt against what happened, and every fact but the payload", async () => {
  const deadline = formatInstant(instant(clock.now() + seconds(200)));
  const id = await api.submit({ deadline, key: "invoice-7", input: { private: "s3cret" } });
  const lost = await api.permit();
  assert.equal((await detail(id)).lease?.holder, lost.by);
  assert.equal(await api.lose(), "suspended");
  await api.done(lost, { type: "succeeded", result: '{"private":"s3cret"}' });
  const before = await api.get(id);
  assert.ok(!before.text.includes("s3cret"), "no payload");
  const suspended = before.json<WorkDetail>();
  assert.equal(before.headers.get("etag"), `"${suspended.resource_version}"`);
  assert.deepEqual(
    [suspended.state, suspended.outcome_unknown, suspended.suspended?.reason, suspended.key],
    ["suspended", true, "outcome_unknown", "invoice-7"],
  );
  assert.deepEqual(
    suspended.observations.map(({ reason, outcome, retention_policy }) => [
      reason,
      outcome,
      retention_policy,
    ]),
    [["expired", "succeeded", "a-year"]],
  );
  const resolved = await api.view(id, "resolve", {
    body: { verdict: "not_applied", note: "asked the bank" },
  });
  assert.deepEqual([resolved.state, resolved.suspended?.reason], ["suspended", "not_applied"]);
  await clock.advance(seconds(60));
  await api.view(id, "requeue");
  await api.done(await api.permit(), { type: "failed", code: "declined", message: "no money", final: false });
  await clock.advance(seconds(60));
  await api.done(await api.permit(), { type: "succeeded", result: "" });
  const end = await detail(id);
  const accepted = BigInt(Date.parse(end.accepted_at)) * 1_000n;
  assert.deepEqual(
    end.plan?.slots.map(({ attempt, offset_us, eligible_at, came }) => [
      attempt,
      offset_us,
      Date.parse(eligible_at) - Number(accepted / 1_000n),
      came,
    ]),
    [
      [1, "0", 0, "unknown"],
      [2, "60000000", 60_000, "failed"],
      [3, "120000000", 120_000, "succeeded"],
    ],
  );
  assert.deepEqual(
    end.attempt_log.map(({ attempt, outcome, failure, proof }) => [
      attempt,
      outcome,
      failure?.code ?? null,
      proof && [proof.verdict, proof.source, proof.by, proof.note],
    ]),
    [
      [1, "unknown", null, ["not_applied", "operator", "caller-1", "asked the bank"]],
      [2, "failed", "declined", null],
      [3, "succeeded", null, null],
    ],
  );
  assert.ok(
    end.attempt_log.every((one) => one.admitted_at !== null && one.ended_at !== null && one.epoch !== "0"),
  );
  assert.deepEqual(
    end.suspensions.map(({ reason, ending, ended_by }) => [reason, ending, ended_by]),
    [
      ["outcome_unknown", "proven", "caller-1"],
      ["not_applied", "requeued", "caller-1"],
    ],
  );
  assert.deepEqual([end.state, end.lease, end.deadline, end.attempts], ["succeeded", null, deadline, 3]);
  const payload = await call(a, "GET", `/v1/work/${id}/payload`);
  assert.deepEqual(payload.json(), {
    input: { private: "s3cret" },
    result: null,
    late_results: [{ observation_id: end.observations[0]?.id, result: { private: "s3cret" } }],
  });
});

/** Where an inspection tells what each column holds; null: what names the row itself, or its payload. */
const toldIn: Readonly<Record<string, readonly (readonly [column: string, path: string | null])[]>> = {
  work_items: [
    ["tenant_id", null],
    ["work_id", "id"],
    ["version_number", "version"],
    ["idempotency_key", "key"],
    ["fingerprint_schema", "fingerprint_schema"],
    ["fingerprint", "fingerprint"],
    ["input", null],
    ["provider_key", "provider_key"],
    ["circuit_key", "circuit_key"],
    ["queue", "queue"],
    ["priority", "priority"],
    ["accepted_at", "accepted_at"],
    ["due_at", "first_due_at"],
    ["attempts_max", "attempts_max"],
    ["retry_initial_microseconds", "retry.initial_us"],
    ["retry_longest_microseconds", "retry.longest_us"],
    ["elapsed_max_microseconds", "retry.elapsed_max_us"],
    ["lease_max_microseconds", "retry.lease_max_us"],
    ["traceparent", "traceparent"],
    ["execution_policy_schema", "execution_policy_schema"],
    ["attempt_plan_version", "plan.version"],
    ["attempt_plan_offsets", "plan.slots.0.offset_us"],
    ["maximum_circuit_microseconds", "plan.circuit_us"],
    ["execution_not_after", "deadline"],
    ["execution_deadline_reached_at", "deadline_reached_at"],
    ["execution_admission_closed_at", "admission_closed.at"],
    ["execution_admission_closed_reason", "admission_closed.reason"],
    ["discovery_hint", "discovery_hint"],
  ],
  work_attempts: [
    ["tenant_id", null],
    ["work_id", null],
    ["attempt", "attempt_log.0.attempt"],
    ["holder", "attempt_log.0.holder"],
    ["epoch", "attempt_log.0.epoch"],
    ["outcome", "attempt_log.0.outcome"],
    ["ended_at", "attempt_log.0.ended_at"],
    ["failure_code", "attempt_log.0.failure"],
    ["failure_message", "attempt_log.0.failure"],
    ["permit_admitted_at", "attempt_log.0.admitted_at"],
  ],
  work_history: [
    ["tenant_id", null],
    ["work_id", null],
    ["state", "state"],
    ["attempts", "attempts"],
    ["finished_at", "finished_at"],
    ["holder", "attempt_log.0.holder"],
    ["epoch", "attempt_log.0.epoch"],
    ["result", null],
    ["failure_code", "failure"],
    ["failure_message", "failure"],
    ["permit_admitted_at", "attempt_log.0.admitted_at"],
  ],
  work_observations: [
    ["tenant_id", null],
    ["observation_id", "observations.0.id"],
    ["work_id", null],
    ["attempt", "observations.0.attempt"],
    ["holder", "observations.0.holder"],
    ["epoch", "observations.0.epoch"],
    ["outcome", "observations.0.outcome"],
    ["reason", "observations.0.reason"],
    ["result", null],
    ["failure_code", "observations.0.failure"],
    ["failure_message", "observations.0.failure"],
    ["observed_at", "observations.0.at"],
    ["retention_policy", "observations.0.retention_policy"],
  ],
  work_proofs: [
    ["tenant_id", null],
    ["work_id", null],
    ["attempt", "attempt_log.0.attempt"],
    ["epoch", "attempt_log.0.epoch"],
    ["verdict", "attempt_log.0.proof.verdict"],
    ["source", "attempt_log.0.proof.source"],
    ["proven_by", "attempt_log.0.proof.by"],
    ["note", "attempt_log.0.proof.note"],
    ["proven_at", "attempt_log.0.proof.at"],
  ],
  work_suspensions: [
    ["tenant_id", null],
    ["work_id", null],
    ["suspended_at", "suspensions.0.since"],
    ["reason", "suspensions.0.reason"],
    ["suspended_by", "suspensions.0.by"],
    ["ended_at", "suspensions.0.ended_at"],
    ["ended_by", "suspensions.0.ended_by"],
    ["ending", "suspensions.0.ending"],
  ],
  work_cancels: [
    ["tenant_id", null],
    ["work_id", null],
    ["requested_at", "cancel.at"],
    ["requested_by", "cancel.by"],
    ["reason", "cancel.reason"],
  ],
  work_circuits: [
    ["tenant_id", null],
    ["circuit_key", "circuit_key"],
    ["failures", "circuit.failures"],
    ["opened_at", "circuit.opened_at"],
    ["probe_at", "circuit.probe_at"],
    ["probing", "circuit.probing"],
    ["probe_until", "circuit.probe_until"],
  ],
  leases_work: [
    ["tenant_id", null],
    ["kind", null],
    ["resource_id", null],
    ["queue", "queue"],
    ["priority", "priority"],
    ["due_at", "next_due_at"],
    ["wake_at", "lease.until"],
    ["holder", "lease.holder"],
    ["epoch", "lease.epoch"],
    ["work_state", "state"],
    ["attempt", "attempts"],
    ["renew_until", "lease.renewable_until"],
    ["permit_admitted_at", "lease.admitted_at"],
  ],
};

test("W12: no column of Work is left out of an inspection", async () => {
  const rows = await kernel.ask<{ table: string; column: string }>(
    `select c.relname as table, a.attname as column from pg_class c join pg_attribute a on a.attrelid = c.oid
     where c.relnamespace = 'holdfast'::regnamespace and a.attnum > 0 and not a.attisdropped and c.relname = any ($1)`,
    [Object.keys(toldIn)],
  );
  const known = Object.entries(toldIn).flatMap(([table, columns]) =>
    columns.map(([column]) => `${table}.${column}`),
  );
  assert.deepEqual(rows.map(({ table, column }) => `${table}.${column}`).toSorted(), known.toSorted());
  // One that runs, and one to which everything has happened.
  const live = await api.submit({ queue: "default" });
  const late = await api.permit();
  const running = await detail(live);
  await api.lose();
  await api.done(late, { type: "succeeded", result: "" });
  await kernel.ask(
    "insert into holdfast.work_circuits (tenant_id, circuit_key, failures) values ('tenant-a', 'bank', 1)",
  );
  const deadline = formatInstant(instant(clock.now() + seconds(40)));
  const end = await api.submit({ deadline, circuit_key: "bank" });
  const gone = await api.permit();
  await api.lose();
  await api.view(end, "cancel");
  await clock.advance(seconds(40));
  await api.done(gone, { type: "succeeded", result: "" });
  await api.view(end, "resolve", { body: { verdict: "applied", note: "seen" } });
  const ended = await detail(end);
  const at = (from: unknown, path: string): unknown =>
    path.split(".").reduce<unknown>((one, step) => (one as Record<string, unknown> | null)?.[step], from);
  for (const [table, columns] of Object.entries(toldIn)) {
    for (const [column, path] of columns) {
      if (path === null) continue;
      const found = table === "leases_work" ? at(running, path) : at(ended, path);
      assert.notEqual(found, undefined, `${table}.${column} is told in ${path}`);
    }
  }
  assert.deepEqual([ended.cancel?.by, ended.state], ["caller-1", "succeeded_after_cancel_requested"]);
});

test("W9 G3: a request is the same one over HTTP and from a program, also after its end; another under its key is a conflict", async () => {
  const body = {
    name: "charge",
    version: "1",
    input: { cents: 1 },
    key: "both-ways",
    queue: "mail",
    priority: 1,
  };
  const item = { input: { cents: 1 }, key: "both-ways", queue: "mail", priority: 1 } as const;
  const [program] = await submitAlone(kernel.db.pools.of("producer"), {
    tenant: tenantA,
    deploymentEpoch: 1n,
    name: "charge",
    version: "1",
    items: await prepared(charge, [item]),
  });
  const again = await call(a, "POST", "/v1/work", { body });
  assert.deepEqual([again.status, again.json<WorkReceipt>().id], [200, program?.id]);
  assert.equal(again.headers.get("location"), `/v1/work/${program?.id}`);
  await api.view(program?.id ?? "", "cancel");
  const ended = await call(a, "POST", "/v1/work", { body });
  assert.deepEqual([ended.status, ended.json<WorkReceipt>().duplicate], [200, true]);
  const other = await call(a, "POST", "/v1/work", { body: { ...body, input: { cents: 2 } } });
  assert.deepEqual([other.status, other.problem().code], [409, "idempotency_conflict"]);
  const keyed = { body: { name: "charge", version: "1", input: 7, queue: "mail" }, key: "once" };
  const first = await call(a, "POST", "/v1/work", keyed);
  const replayed = await call(a, "POST", "/v1/work", keyed);
  assert.deepEqual(
    [first.status, replayed.status, replayed.headers.get("idempotency-replayed"), replayed.text],
    [201, 201, "true", first.text],
  );
});

test("W2 W10: what a version's terms refuse is refused with its code, and nothing of a batch is accepted with it", async () => {
  const refused = async (more: object) => {
    const reply = await call(a, "POST", "/v1/work", {
      body: { name: "plain", version: "1", input: 1, ...more },
    });
    return [reply.status, reply.problem().code];
  };
  assert.deepEqual(await refused({ version: "9" }), [409, "work_not_registered"]);
  const soon = formatInstant(instant(clock.now() + seconds(9)));
  assert.deepEqual(await refused({ deadline: soon }), [400, "invalid_request"], "legacy work takes none");
  assert.deepEqual(await refused({ deadline: "2026-13-41T00:00:00.000000Z" }), [400, "invalid_request"]);
  const past = formatInstant(clock.now());
  assert.deepEqual(await refused({ name: "charge", deadline: past }), [409, "deadline_elapsed"]);
  assert.deepEqual(
    await refused({ name: "charge", delay: "1s" }),
    [400, "invalid_request"],
    "a plan counts itself",
  );
  assert.deepEqual(await refused({ delay: "999999999h" }), [400, "invalid_request"]);
  const many = (count: number, last: object = {}) => ({
    name: "plain",
    version: "1",
    items: Array.from({ length: count }, (_, n) => ({ input: n, ...(n === count - 1 ? last : {}) })),
  });
  const counted = async () =>
    (await kernel.ask<{ n: number }>("select count(*)::int as n from holdfast.work_items"))[0]?.n ?? 0;
  const before = await counted();
  const broken = await call(a, "POST", "/v1/work:batch", { body: many(9, { delay: "999999999h" }) });
  assert.deepEqual([broken.status, await counted()], [400, before]);
  assert.equal((await call(a, "POST", "/v1/work:batch", { body: many(batchMax + 1) })).status, 400);
  const whole = await call(a, "POST", "/v1/work:batch", { body: many(batchMax), key: "a-batch" });
  assert.deepEqual([whole.status, await counted()], [201, before + batchMax]);
  assert.equal(new Set(whole.json<WorkReceipts>().items.map(({ id }) => id)).size, batchMax);
});

test("G4: a stale If-Match is 412 and changes nothing; what it says is opaque and follows every change", async () => {
  const id = await api.submit({ queue: "mail" });
  const etag = (await api.get(id)).headers.get("etag") ?? "";
  const suspended = await api.ask(id, "suspend", { ifMatch: etag });
  assert.equal(suspended.status, 202, suspended.text);
  assert.notEqual(suspended.headers.get("etag"), etag);
  for (const verb of ["cancel", "release", "requeue"]) {
    const stale = await api.ask(id, verb, { ifMatch: etag });
    assert.deepEqual([stale.status, stale.problem().code], [412, "precondition_failed"], verb);
  }
  assert.equal((await detail(id)).state, "suspended");
  const fresh = await api.ask(id, "cancel", { ifMatch: suspended.headers.get("etag") ?? "" });
  assert.equal(fresh.json<WorkView>().state, "cancelled_before_effect");
});

test("W10 W11: nothing is put back past its cutoff or while an outcome is unknown; a proof is of the attempt that it names", async () => {
  const id = await api.submit();
  await api.permit();
  await api.lose();
  for (const verb of ["release", "requeue"]) {
    const reply = await api.ask(id, verb);
    assert.deepEqual([reply.status, reply.problem().code], [409, "conflict"], verb);
  }
  const proof = { verdict: "not_applied", note: "nothing at the bank" };
  const wrong = await api.ask(id, "resolve", { body: { ...proof, attempt: 2 } });
  assert.equal(wrong.status, 409);
  assert.equal(
    (await api.ask(id, "resolve", { body: { verdict: "applied" } })).status,
    400,
    "a note is needed",
  );
  assert.equal((await api.view(id, "resolve", { body: { ...proof, attempt: 1 } })).outcome_unknown, false);
  assert.equal((await api.ask(id, "resolve", { body: proof })).status, 409, "nothing is unknown any more");
  await clock.advance(seconds(300));
  for (const verb of ["release", "requeue"]) {
    const reply = await api.ask(id, verb);
    assert.deepEqual([reply.status, reply.problem().code], [409, "admission_closed"], verb);
  }
  assert.equal((await detail(id)).state, "suspended");
});

test("W11: a proof settles what happened after the cutoff, too, with the result that it brings", async () => {
  const id = await api.submit();
  await api.permit();
  await api.lose();
  await clock.advance(seconds(300));
  const body = { verdict: "applied", note: "the bank has it", result: { paid: true } };
  const settled = await api.view(id, "resolve", { body });
  assert.deepEqual([settled.state, settled.outcome_unknown], ["succeeded", false]);
  const end = await detail(id);
  assert.deepEqual([end.admission_closed?.reason, end.attempt_log.length], ["circuit_elapsed", 1]);
  const payload = (await call(a, "GET", `/v1/work/${id}/payload`)).json<{ result: unknown }>();
  assert.deepEqual(payload.result, { paid: true });
});

test("G8: a cancellation ends what has not begun, is told of what runs, and is never taken back", async () => {
  const waits = await api.submit({ queue: "mail" });
  const cancelled = await api.view(waits, "cancel", { body: { reason: "twice" } });
  assert.equal(cancelled.state, "cancelled_before_effect");
  const runs = await api.submit();
  const running = await api.permit();
  assert.equal((await api.view(runs, "cancel")).state, "cancel_pending");
  assert.equal((await api.view(runs, "cancel")).state, "cancel_pending", "again changes nothing");
  await api.done(running, { type: "succeeded", result: "" });
  const end = await detail(runs);
  assert.deepEqual([end.state, end.cancel?.by], ["succeeded_after_cancel_requested", "caller-1"]);
  assert.equal((await api.view(runs, "cancel")).state, end.state);
});

test("G1: a scope of work is good for what it says, and narrowed to an item for that one alone", async () => {
  const [mine, other] = [await api.submit({ queue: "mail" }), await api.submit({ queue: "mail" })];
  const holder = async (...scopes: GrantedScope[]): Promise<Caller> => {
    const { id, token } = await createToken(kernel.db, {
      tenant: tenantA,
      principal: a.principal,
      scopes,
      lifetime: seconds(3600),
    });
    return { ...a, token, tokenId: id };
  };
  const status = async (who: Caller, method: string, path: string, body?: unknown) =>
    (await call(who, method, path, body === undefined ? {} : { body })).status;
  const reader = await holder(`work:read:${mine}`);
  assert.equal(await status(reader, "GET", `/v1/work/${mine}`), 200);
  assert.equal(await status(reader, "GET", `/v1/work/${other}`), 403);
  assert.equal(await status(reader, "GET", `/v1/work/${uuidv7()}`), 403, "as of one that isn't there");
  assert.equal(await status(reader, "GET", "/v1/work"), 403);
  assert.equal(
    await status(reader, "GET", `/v1/work/${mine}/payload`),
    403,
    "a payload has a scope of its own",
  );
  assert.equal(await status(reader, "POST", `/v1/work/${mine}:cancel`), 403);
  const keeper = await holder(`work:operate:${mine}`);
  assert.equal(await status(keeper, "POST", `/v1/work/${other}:suspend`), 403);
  assert.equal(await status(keeper, "POST", `/v1/work/${mine}:suspend`), 202);
  assert.equal(await status(keeper, "POST", `/v1/work/${mine}:cancel`), 403);
  const writer = await holder("work:write");
  assert.equal(await status(writer, "POST", `/v1/work/${mine}:release`), 403);
  assert.equal(await status(writer, "POST", "/v1/work", { name: "plain", version: "1", input: 1 }), 201);
  assert.equal(await status(writer, "POST", `/v1/work/${mine}:cancel`), 202);
  // What is everything of a tenant is not the installation: where these are served, they need its scope.
  assert.equal(await status(b, "GET", `/v1/work/${mine}`), 404);
});

test("W12: lists go by state, name, version, queue and reason of suspension, a page at a time", async () => {
  const all = async (query: string) => {
    const items: WorkView[] = [];
    for (let token = ""; ; ) {
      const page = await call(a, "GET", `/v1/work?${query}${token}`);
      assert.equal(page.status, 200, page.text);
      const { items: some, next_page_token: next } = page.json<{
        items: WorkView[];
        next_page_token: string | null;
      }>();
      items.push(...some);
      if (next === null) return items;
      token = `&page_token=${next}`;
    }
  };
  const everything = await all("limit=100");
  const ids = everything.map(({ id }) => id);
  assert.deepEqual(ids, ids.toSorted().toReversed(), "newest first");
  const [{ n } = { n: 0 }] = await kernel.ask<{ n: number }>(
    "select count(*)::int as n from holdfast.work_items where tenant_id = 'tenant-a'",
  );
  assert.deepEqual([new Set(ids).size, ids.length], [n, n]);
  const expect = async (query: string, fits: (view: WorkView) => boolean) => {
    const found = await all(query);
    assert.deepEqual(
      found.map(({ id }) => id),
      everything.filter(fits).map(({ id }) => id),
      query,
    );
    return found.length;
  };
  for (const state of new Set(everything.map((view) => view.state)))
    assert.ok((await expect(`state=${state}&limit=50`, (view) => view.state === state)) > 0);
  assert.ok((await expect("queue=mail&limit=2", ({ queue }) => queue === "mail")) > 2);
  assert.ok((await expect("name=charge&version=1", ({ name }) => name === "charge")) > 2);
  assert.equal(await expect("name=charge&version=2", () => false), 0);
  assert.ok(
    (await expect("reason=outcome_unknown", (view) => view.suspended?.reason === "outcome_unknown")) > 0,
  );
  assert.ok((await expect("reason=not_applied", (view) => view.suspended?.reason === "not_applied")) > 0);
  assert.equal(await expect("state=failed&reason=operator", () => false), 0);
  const page = await call(a, "GET", "/v1/work?limit=1");
  const token = page.json<{ next_page_token: string }>().next_page_token;
  const elsewhere = await call(a, "GET", `/v1/work?limit=1&queue=mail&page_token=${token}`);
  assert.equal(elsewhere.problem().code, "invalid_cursor");
});

test("S6 G2: what is accepted, settled, cancelled and decided by operators is in the watch, and every command in the audit", async () => {
  const stream = await openEvents(bench.url("/v1/watch?kind=work"), a.token);
  await stream.next();
  const id = await api.submit({ queue: "mail" });
  const told = async () => {
    const change = await stream.change();
    assert.ok(change, "the stream goes on");
    return [change.kind, change.operation, JSON.stringify(change).includes(id)];
  };
  assert.deepEqual(await told(), ["work", "work.accepted", true]);
  await api.view(id, "suspend");
  assert.deepEqual(await told(), ["work", "work.suspended", true]);
  await api.view(id, "release");
  assert.deepEqual(await told(), ["work", "work.released", true]);
  await api.view(id, "cancel", { body: { reason: "s3cret-reason" } });
  assert.deepEqual(await told(), ["work", "work.settled", true]);
  stream.close();
  const audit = await call(a, "GET", `/v1/commands?target=/v1/work/${id}`);
  assert.ok(!audit.text.includes("s3cret"));
  assert.deepEqual(
    audit
      .json<{ items: CommandView[] }>()
      .items.map(({ operation, principal, status }) => [operation, principal, status]),
    ["cancel", "release", "suspend"].map((verb) => [`work.${verb}`, "caller-1", 202]),
  );
});

test("W2: a version that nobody runs is shown with what waits for it; retired, it takes nothing new and its rows drain", async () => {
  const operated = await bench.start({
    routes: apiRoutes({ blobs: noBlobs, queueMax: 10, examine: (tenant) => examine(kernel.db, tenant) }),
  });
  after(() => operated.close());
  const operator = await bench.caller(tenantA, ["operator"]);
  const ask = (who: Caller, method: string, path: string, body?: unknown) =>
    fetch(`${operated.address}${path}`, {
      method,
      headers: {
        authorization: `Bearer ${who.token}`,
        ...(body === undefined ? {} : { "content-type": "application/json" }),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  await registerVersion(kernel.db, { ...plain, version: "old" });
  const version = async () => {
    const { items } = (await call(a, "GET", "/v1/work-versions?name=plain")).json<{
      items: WorkVersionView[];
    }>();
    return items.find((one) => one.version === "old");
  };
  assert.deepEqual([(await version())?.waiting, (await version())?.workers], [false, 0]);
  const waits = await api.submit({ name: "plain", version: "old", priority: 3 });
  assert.deepEqual([(await version())?.waiting, (await version())?.retired_at], [true, null]);
  const path = "/v1/work-versions/plain/old:retire";
  assert.equal((await ask(a, "POST", path)).status, 403, "a tenant's own scopes are not the installation's");
  const first = (await (await ask(operator, "POST", path)).json()) as { retired_at: string };
  assert.ok(first.retired_at);
  const second = (await (await ask(operator, "POST", path)).json()) as { retired_at: string };
  assert.equal(second.retired_at, first.retired_at);
  const late = await call(a, "POST", "/v1/work", { body: { name: "plain", version: "old", input: 1 } });
  assert.deepEqual([late.status, late.problem().code], [409, "work_retired"]);
  assert.equal((await detail(waits)).state, "pending", "what was accepted drains");
  assert.equal((await ask(operator, "POST", "/v1/work-versions/plain/none:retire")).status, 404);

  // A tenant is disabled for good, by its name said twice.
  const closing = brandId<TenantId>("closing");
  await createTenant(kernel.db, closing);
  const theirs = await bench.caller(closing, ["*"]);
  const item = { name: "plain", version: "1", input: 1 };
  const { id } = (await call(theirs, "POST", "/v1/work", { body: item })).json<WorkReceipt>();
  const disable = (confirm: string) => ask(operator, "POST", "/v1/tenants/closing:disable", { confirm });
  assert.equal((await disable("closin")).status, 409);
  assert.equal((await call(theirs, "GET", `/v1/work/${id}`)).status, 200);
  assert.equal((await disable("closing")).status, 200);
  assert.equal((await call(theirs, "GET", `/v1/work/${id}`)).status, 401);
  assert.deepEqual(
    await kernel.ask(
      "select l.work_state, s.reason from holdfast.leases_work l join holdfast.work_suspensions s on s.work_id = l.resource_id where l.resource_id = $1",
      [id],
    ),
    [{ work_state: "suspended", reason: "tenant_disabled" }],
  );
  assert.equal((await disable("closing")).status, 200, "again changes nothing");
  await until("it is in the audit of who asked", async () => {
    const audit = await call(a, "GET", "/v1/commands?target=/v1/tenants/closing");
    return audit.json<{ items: CommandView[] }>().items.length === 2;
  });
});
