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
  // Its text is no longer than a body may be, and what the database makes of it is longer than an input may be.
  const input = Array.from({ length: 60_000 }, () => 1);
  for (const [path, body, pointer] of [
    ["/v1/work", { name: "plain", version: "1", input }, "/input"],
    ["/v1/work:batch", many(3, { input }), "/items/2/input"],
  ] as const) {
    const large = await call(a, "POST", path, { body });
    assert.deepEqual([large.status, large.problem().code], [400, "invalid_request"]);
    assert.deepEqual(
      large.problem().errors?.map((error) => error.pointer),
      [pointer],
    );
  }
  assert.equal(await counted(), before);
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
  await api.submit();
  await api.permit();
  assert.equal(await api.lose(), "suspended", "nobody knows what it did");
  for (let n = 0; n < 3; n += 1) await api.submit({ queue: "mail" });
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
