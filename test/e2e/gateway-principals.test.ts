import assert from "node:assert/strict";
import { after, test } from "node:test";
import { createToken, listTokens, revokeToken, rotateToken } from "../../src/core/tenant.store.ts";
import type { GrantedScope } from "../../src/core/tenant.ts";
import { seconds } from "../../src/core/time.ts";
import type { CommandView } from "../../src/wire/command.ts";
import type { ChangeEvent } from "../../src/wire/job.ts";
import { openEvents } from "../support/event-stream.ts";
import { type Caller, openBench, submission } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";
import { until } from "../support/until.ts";

const bench = await openBench({ after }, { limits: { rate: { requests: 200, windowSeconds: 10_000 } } });
const { db } = bench.kernel;

async function narrowed(...scopes: GrantedScope[]): Promise<Caller> {
  const { id, token } = await createToken(db, {
    tenant: tenantA,
    principal: bench.a.principal,
    scopes,
    lifetime: seconds(3600),
  });
  return { ...bench.a, token, tokenId: id };
}

test("G1: a scope narrowed to one resource is good for that one alone, and tells nothing of others", async () => {
  const [mine, other] = [await bench.submit(), await bench.submit()];
  const guest = await narrowed(`jobs:read:${mine.id}`, `watch:read:${mine.id}`);
  const status = async (method: string, path: string) => (await bench.call(guest, method, path)).status;
  for (const part of ["", "/spec", "/attempts", "/artifacts", "/logs"]) {
    assert.equal(await status("GET", `/v1/jobs/${mine.id}${part}`), 200, part);
    assert.equal(await status("GET", `/v1/jobs/${other.id}${part}`), 403, part);
    // As of one that isn't there.
    assert.equal(await status("GET", `/v1/jobs/01976b2c-0000-7000-8000-000000000000${part}`), 403, part);
  }
  assert.equal(await status("POST", `/v1/jobs/${mine.id}:cancel`), 403);
  assert.equal(await status("GET", "/v1/jobs"), 403);
  assert.equal(await status("GET", "/v1/watch"), 403);
  assert.equal(await status("GET", `/v1/watch?job=${other.id}`), 403);
  assert.equal(await status("GET", `/v1/watch?job=${mine.id}&job=${other.id}`), 403);
  const stream = await openEvents(bench.url(`/v1/watch?job=${mine.id}`), guest.token);
  assert.equal(stream.status, 200);
  stream.close();
  const canceller = await narrowed(`jobs:write:${mine.id}`);
  assert.equal((await bench.call(canceller, "POST", `/v1/jobs/${other.id}:cancel`)).status, 403);
  assert.equal((await bench.call(canceller, "POST", "/v1/jobs", { body: submission() })).status, 403);
  assert.equal((await bench.call(canceller, "POST", `/v1/jobs/${mine.id}:cancel`)).status, 202);
});

test("G1: a token is rotated by overlap: both are good for a while, then only the successor", async () => {
  const old = await bench.caller(tenantA, ["jobs:read"]);
  const rotate = (token: string, overlap: number) =>
    rotateToken(db, { tenant: tenantA, token, overlap: seconds(overlap) });
  const successor = await rotate(old.tokenId, 0.5);
  const status = async (token: string) => (await bench.call({ ...old, token }, "GET", "/v1/jobs")).status;
  assert.deepEqual([await status(old.token), await status(successor.token)], [200, 200]);
  await until("the old one is out", async () => (await status(old.token)) === 401);
  assert.equal(await status(successor.token), 200);
  await assert.rejects(rotate(old.tokenId, 10), { code: "conflict" });
});

test("G1: a revocation can be brought forward, and never put off", async () => {
  const caller = await bench.caller(tenantA, ["jobs:read"]);
  const { tokenId: token } = caller;
  const revoke = (after: number) => revokeToken(db, { tenant: tenantA, token, after: seconds(after) });
  await revoke(3600);
  assert.equal((await bench.call(caller, "GET", "/v1/jobs")).status, 200);
  await revoke(0);
  assert.equal((await bench.call(caller, "GET", "/v1/jobs")).status, 401);
  await revoke(3600);
  assert.equal((await bench.call(caller, "GET", "/v1/jobs")).status, 401);
  const later = bench.kernel.ask(
    "update holdfast.tokens set revoked_at = revoked_at + interval '1 h' where token_id = $1",
    [token],
  );
  await assert.rejects(later, { code: "HF002" });
});

test("tokens are listed with their last use, and without what they are", async () => {
  const caller = await bench.caller(tenantA, ["jobs:read"]);
  const found = async () => (await listTokens(db, tenantA)).find((row) => row.token_id === caller.tokenId);
  assert.equal((await found())?.last_used_at, null);
  await bench.call(caller, "GET", "/v1/jobs");
  const row = await found();
  assert.ok(row?.last_used_at);
  assert.ok(!Object.values(row).some((value) => caller.token.includes(String(value))));
});

test("the audit says who asked for what, when, and what came of it, and nothing of what was sent", async () => {
  const caller = await bench.caller(tenantA, ["*"]);
  const made = await bench.call(caller, "POST", "/v1/jobs", {
    body: submission({ labels: { secret: "s3cret-label" } }),
    key: "audited",
    headers: { "x-request-id": "req-audit" },
  });
  const { id } = made.json<{ id: string }>();
  await bench.call(caller, "POST", `/v1/jobs/${id}:cancel`, { body: { reason: "s3cret-reason" } });
  await bench.call(caller, "PATCH", `/v1/jobs/${id}`, { body: { priority: 1 }, ifMatch: '"77"' });
  const list = async (query: string) => {
    const reply = await bench.call(caller, "GET", `/v1/commands${query}`);
    assert.equal(reply.status, 200, reply.text);
    assert.ok(!reply.text.includes("s3cret"));
    return reply.json<{ items: CommandView[]; next_page_token: string | null }>();
  };
  const [row] = await bench.kernel.ask<{ name: string }>(
    "select name from holdfast.principals where principal_id = $1",
    [caller.principal],
  );
  const { items } = await list(`?principal=${row?.name}`);
  assert.deepEqual(
    items.map(({ operation, target, status }) => [operation, target, status]),
    [
      ["jobs.cancel", `/v1/jobs/${id}`, 202],
      ["jobs.submit", "/v1/jobs", 201],
    ],
    "what was refused did nothing and left nothing",
  );
  assert.deepEqual([items[1]?.idempotency_key, items[1]?.request_id], ["audited", "req-audit"]);
  const seen: string[] = [];
  let page = await list("?limit=3");
  for (;;) {
    seen.push(...page.items.map((command) => command.id));
    if (page.next_page_token === null) break;
    page = await list(`?limit=3&page_token=${page.next_page_token}`);
  }
  assert.equal(new Set(seen).size, seen.length);
  const [{ n } = { n: 0 }] = await bench.kernel.ask<{ n: number }>(
    "select count(*)::int as n from holdfast.commands where tenant_id = 'tenant-a'",
  );
  assert.equal(seen.length, n);
  const one = await bench.call(bench.b, "GET", `/v1/commands/${seen[0]}`);
  assert.deepEqual([one.status, one.problem().code], [404, "not_found"]);
  assert.equal((await bench.call(await narrowed("jobs:read"), "GET", "/v1/commands")).status, 403);
});

test("a trace context goes into the command and on to the change and the job; a broken one is left out", async () => {
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const stream = await openEvents(bench.url("/v1/watch"), bench.a.token);
  await stream.next();
  const submit = (header: string) =>
    bench.call(bench.a, "POST", "/v1/jobs", { body: submission(), headers: { traceparent: header } });
  /** What came before may get its position only now, and is told first. */
  const changeOf = async (id: string) => {
    for (;;) {
      const change = (await stream.change()) as ChangeEvent;
      if (change.id === id) return change;
    }
  };
  const { id } = (await submit(traceparent)).json<{ id: string }>();
  assert.equal((await changeOf(id)).traceparent, traceparent);
  const rows = await bench.kernel.ask(
    `select (select traceparent from holdfast.jobs where job_id = $1) as job,
       (select traceparent from holdfast.commands where response_body ->> 'id' = $1::text) as command`,
    [id],
  );
  assert.deepEqual(rows, [{ job: traceparent, command: traceparent }]);
  for (const broken of [
    "nonsense",
    traceparent.replace("0af7651916cd43dd8448eb211c80319c", "0".repeat(32)),
    traceparent.toUpperCase(),
  ]) {
    const reply = await submit(broken);
    assert.equal(reply.status, 201);
    assert.equal((await changeOf(reply.json<{ id: string }>().id)).traceparent, null);
  }
  stream.close();
});

test("G11: each principal has its own rate, and is told of it; over it, when to come again", async () => {
  const caller = await bench.caller(tenantA, ["jobs:read"]);
  const first = await bench.call(caller, "GET", "/v1/jobs?limit=1");
  assert.equal(first.headers.get("ratelimit-policy"), '"principal";q=200;w=10000');
  assert.equal(first.headers.get("ratelimit"), '"principal";r=199;t=50');
  const replies = await Promise.all(
    Array.from({ length: 220 }, () => bench.call(caller, "GET", "/v1/jobs?limit=1")),
  );
  const refused = replies.filter(({ status }) => status !== 200);
  assert.ok(refused.length >= 15, String(refused.length));
  for (const reply of refused) {
    assert.deepEqual([reply.status, reply.problem().code], [429, "too_many_requests"]);
    assert.match(reply.headers.get("ratelimit") ?? "", /^"principal";r=0;t=\d+$/);
    assert.match(reply.headers.get("retry-after") ?? "", /^[1-9]\d?$/);
  }
  assert.equal((await bench.call(await bench.caller(tenantA, ["jobs:read"]), "GET", "/v1/jobs")).status, 200);
});
