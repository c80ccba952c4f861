import assert from "node:assert/strict";
import { after, test } from "node:test";
import { ApiError, createClient } from "../../src/client/client.ts";
import { uuidv7 } from "../../src/core/ids.ts";
import type { DeliveryDetail, DeliveryView } from "../../src/wire/delivery.ts";
import { insertDelivery, insertSession, publishReply } from "../support/deliveries.ts";
import { openBench } from "../support/gateway.ts";
import { tenantA, tenantB } from "../support/kernel.ts";

const bench = await openBench({ after });
const { kernel, a, b, call } = bench;
const clientOf = ({ token }: { readonly token: string }) =>
  createClient({ url: bench.gateway().address, token, retry: { triesMax: 1 } });
const client = clientOf(a);
const is = (code: string, status: number) => (error: unknown) =>
  error instanceof ApiError && error.code === code && error.status === status;

async function all<T>(list: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const one of list) found.push(one);
  return found;
}

test("S8 G1: a tenant lists its own deliveries, newest first, by state, session and destination, page by page", async () => {
  const { session } = await insertSession(kernel, tenantA);
  const ids: string[] = [];
  for (let ordinal = 1; ordinal <= 5; ordinal += 1) {
    ids.unshift(await publishReply(kernel, tenantA, { session, ordinal }));
  }
  const inbox = await publishReply(kernel, tenantA, { session, ordinal: 6, destination: "inbox" });
  const dead = await insertDelivery(kernel, tenantA, { state: "dead" });
  const foreign = await insertDelivery(kernel, tenantB);

  const of = async (filter: Parameters<typeof client.listDeliveries>[0]) =>
    (await all(client.listDeliveries({ ...filter, limit: 2 }))).map(({ id }) => id);
  assert.deepEqual(await of({}), [dead, inbox, ...ids]);
  assert.deepEqual(await of({ session, state: "pending" }), ids);
  assert.deepEqual(await of({ state: "dead" }), [dead]);
  assert.deepEqual(await of({ session, destination: "inbox" }), [inbox]);
  assert.deepEqual(await of({ session: uuidv7() }), []);
  assert.deepEqual(
    (await all(clientOf(b).listDeliveries())).map(({ id }) => id),
    [foreign],
  );
});

test("S8: a delivery in the inbox is read whole, with what is told", async () => {
  const { session } = await insertSession(kernel, tenantA);
  const id = await publishReply(kernel, tenantA, { session, ordinal: 1, destination: "inbox" });
  const delivery = await client.getDelivery(id);
  const { created_at, settled_at, source, ...facts } = delivery;
  assert.ok(Date.parse(created_at) > 0 && settled_at !== null && source.kind === "activation");
  assert.deepEqual(facts, {
    id,
    session_id: session,
    ordinal: 1,
    destination: "inbox",
    state: "delivered",
    tries: 0,
    tried_at: null,
    next_try_at: null,
    last_error: null,
    last_status: null,
    resource_version: "1",
    payload: { session_id: session, ordinal: 1, reply: { text: "reply 1" } },
  } satisfies Omit<DeliveryDetail, "created_at" | "settled_at" | "source">);
});

test("S8: of what waits in a line the first one alone has a next try", async () => {
  const { session } = await insertSession(kernel, tenantA);
  const [first, second] = [
    await publishReply(kernel, tenantA, { session, ordinal: 1 }),
    await publishReply(kernel, tenantA, { session, ordinal: 2 }),
  ];
  assert.notEqual((await client.getDelivery(first)).next_try_at, null);
  assert.equal((await client.getDelivery(second)).next_try_at, null);
});

test("S8 G3: a dead delivery is redelivered once for each key, and the audit says by whom", async () => {
  const id = await insertDelivery(kernel, tenantA, { state: "dead" });
  const path = `/v1/deliveries/${id}:redeliver`;
  const first = await call(a, "POST", path, { key: "again", body: {} });
  assert.equal(first.status, 202, first.text);
  const revived = first.json<DeliveryView>();
  assert.deepEqual([revived.state, revived.tries, revived.settled_at], ["pending", 0, null]);
  assert.ok(!("payload" in revived));
  assert.equal(first.headers.get("etag"), `"${revived.resource_version}"`);
  const replay = await call(a, "POST", path, { key: "again", body: {} });
  assert.deepEqual([replay.status, replay.json()], [202, revived]);
  assert.equal(replay.headers.get("idempotency-replayed"), "true");
  await assert.rejects(client.redeliver(id), is("conflict", 409), "it is not dead any more");
  const other = await insertDelivery(kernel, tenantA, { state: "dead" });
  await assert.rejects(client.redeliver(other, { idempotencyKey: "again" }), is("idempotency_conflict", 409));
  const [audited] = await all(client.listCommands({ target: `/v1/deliveries/${id}` }));
  assert.deepEqual(
    [audited?.operation, audited?.principal_id, audited?.idempotency_key],
    ["deliveries.redeliver", a.principal, "again"],
  );
  const changes = await kernel.ask<{ operation: string }>(
    "select operation from holdfast.resource_changes where resource_id = $1 order by resource_version",
    [id],
  );
  assert.deepEqual(
    changes.map(({ operation }) => operation),
    ["delivery.created", "delivery.revived"],
  );
});

test("S8: what is not dead is not redelivered", async () => {
  for (const destination of ["hook", "inbox"]) {
    const id = await insertDelivery(kernel, tenantA, { destination });
    await assert.rejects(client.redeliver(id), is("conflict", 409), destination);
  }
});

test("G1: another tenant's delivery is as absent as one that never was", async () => {
  const id = await insertDelivery(kernel, tenantA, { state: "dead" });
  const stranger = clientOf(b);
  for (const one of [id, uuidv7()]) {
    await assert.rejects(stranger.getDelivery(one), is("not_found", 404));
    await assert.rejects(stranger.redeliver(one), is("not_found", 404));
  }
  const told = await Promise.all(
    [id, uuidv7()].map(async (one) => {
      const { problem } = await call(b, "POST", `/v1/deliveries/${one}:redeliver`, { body: {} });
      const { instance: _, request_id: __, ...rest } = problem() as unknown as Record<string, unknown>;
      return rest;
    }),
  );
  assert.deepEqual(told[0], told[1]);
  assert.equal((await client.getDelivery(id)).state, "dead");
  const page = await client.listDeliveries({ limit: 1 }).page();
  assert.ok(page.next_page_token);
  await assert.rejects(
    stranger.listDeliveries({ limit: 1 }).page(page.next_page_token),
    is("invalid_cursor", 400),
  );
});

test("G1: reading and redelivering take their scopes, on the whole or on one delivery", async () => {
  const id = await insertDelivery(kernel, tenantA, { state: "dead" });
  const other = await insertDelivery(kernel, tenantA, { state: "dead" });
  const reader = clientOf(await bench.caller(tenantA, ["deliveries:read"]));
  assert.equal((await reader.getDelivery(id)).id, id);
  await assert.rejects(reader.redeliver(id), is("forbidden", 403));
  const jobs = clientOf(await bench.caller(tenantA, ["jobs:read", "watch:read"]));
  await assert.rejects(jobs.listDeliveries().page(), is("forbidden", 403));
  await assert.rejects(jobs.getDelivery(id), is("forbidden", 403));
  assert.equal((await call(null, "GET", "/v1/deliveries")).status, 401);
  const narrow = clientOf(await bench.caller(tenantA, [`deliveries:write:${id}`]));
  await assert.rejects(narrow.redeliver(other), is("forbidden", 403));
  assert.equal((await narrow.redeliver(id)).state, "pending");
});

test("S8: what is asked for in a wrong way is refused by its field", async () => {
  const id = await insertDelivery(kernel, tenantA, { state: "dead" });
  for (const query of [
    "state=sent",
    "state=dead&state=pending",
    "session=mine",
    "destination=Hook",
    "destination=",
    "limit=0",
    "limit=ten",
    "page_token=nonsense",
    "colour=red",
  ]) {
    const { status, text } = await call(a, "GET", `/v1/deliveries?${query}`);
    assert.equal(status, 400, `${query}: ${text}`);
  }
  for (const path of [
    "/v1/deliveries/mine",
    "/v1/deliveries/mine:redeliver",
    `/v1/deliveries/${id}:resend`,
  ]) {
    const { status } = await call(a, path.includes(":") ? "POST" : "GET", path);
    assert.equal(status, 404, path);
  }
  assert.equal((await call(a, "DELETE", `/v1/deliveries/${id}`)).status, 405);
  assert.equal(
    (await call(a, "POST", `/v1/deliveries/${id}:redeliver`, { body: { now: true } })).status,
    400,
  );
  assert.equal((await client.getDelivery(id)).state, "dead");
});
