import assert from "node:assert/strict";
import { after, test } from "node:test";
import fc from "fast-check";
import { uuidv7 } from "../../src/core/ids.ts";
import { type ApiOperation, operationsOf, pathOf } from "../support/api-document.ts";
import { oneOfEverything } from "../support/api-fixture.ts";
import { type Caller, openBench, type Reply } from "../support/gateway.ts";
import { fitting } from "../support/schema-arbitrary.ts";
import { until } from "../support/until.ts";

const bench = await openBench({ after });
const operations = operationsOf(bench.gateway().openapi());
const withId = operations.filter(({ path }) => path.includes("{id}"));
const collectionOf = ({ path }: ApiOperation) => path.replace(/\/\{id\}.*$/, "");

function ask(operation: ApiOperation, who: Caller, ids: Readonly<Record<string, string>>): Promise<Reply> {
  const { body, method } = operation;
  // The same for both, so that the answers can only differ by what is there.
  const [sample] = body === null ? [] : fc.sample(fitting(body), { numRuns: 1, seed: 7 });
  return bench.call(who, method, pathOf(operation, ids), {
    ...(body === null ? {} : { body: JSON.stringify(sample) }),
    ifMatch: "*",
  });
}

/** All that a caller can see of an answer. */
const seen = (reply: Reply, id: string) => ({
  status: reply.status,
  headers: [...reply.headers]
    .filter(([name]) => !["date", "x-request-id", "ratelimit"].includes(name))
    .toSorted(([a], [b]) => a.localeCompare(b)),
  body: reply.text.replaceAll(id, "ID").replace(/"request_id":"[^"]+"/, ""),
});

const rowsOf = (tenant: string) =>
  bench.kernel.ask<{ name: string; rows: string | null }>(
    `select c.relname as name, (xpath('//r/text()', query_to_xml(format(
         'select md5(string_agg(t::text, '','' order by t::text)) as r from holdfast.%I t where tenant_id = %L', c.relname, $1::text),
       false, true, '')))[1]::text as rows
     from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'tenant_id'
     where c.relnamespace = 'holdfast'::regnamespace and c.relkind in ('r', 'p') and c.relname <> 'tokens' order by 1`,
    [tenant],
  );

test("G1, S9: another tenant's resource can't be told from one that isn't there, on every route", async () => {
  const fixtures = await oneOfEverything(bench, bench.a);
  await settled();
  const before = await rowsOf("tenant-a");
  const own = await rowsOf("tenant-b");
  assert.ok(before.filter(({ rows }) => rows !== null).length >= 10, "there is something to compare");
  assert.ok(withId.length >= 20);
  for (const operation of withId) {
    const name = `${operation.method} ${operation.path}`;
    const ids = fixtures.get(collectionOf(operation));
    assert.ok(ids, `test/support/api-fixture.ts has none of ${collectionOf(operation)}`);
    const absent = uuidv7();
    const [theirs, nobodys] = [
      await ask(operation, bench.b, ids),
      await ask(operation, bench.b, { ...ids, id: absent }),
    ];
    assert.equal(theirs.status, 404, `${name}: ${theirs.text}`);
    assert.equal(theirs.problem().code, "not_found");
    assert.deepEqual(seen(theirs, ids["id"] ?? ""), seen(nobodys, absent), name);
  }
  assert.deepEqual(await rowsOf("tenant-a"), before);
  assert.deepEqual(await rowsOf("tenant-b"), own, "nor did it leave anything with whoever asked");
});

/** Positions are given after the commit. */
const settled = () =>
  until("all changes have positions", async () => {
    const [row] = await bench.kernel.ask<{ n: number }>(
      "select count(*)::int as n from holdfast.resource_changes where position is null",
    );
    return row?.n === 0;
  });

test("G1, S9: what the fixture has is there for its own tenant, so that the sweep proves something", async () => {
  const other = await openBench({ after });
  const fixtures = await oneOfEverything(other, other.a);
  for (const operation of withId.filter(({ method }) => method === "GET")) {
    const ids = fixtures.get(collectionOf(operation)) ?? {};
    const reply = await other.call(other.a, "GET", pathOf(operation, ids));
    // Bytes and plans were never made: they are not there, but their resource is found.
    const known = reply.status === 200 || /artifacts|bundle|plan/.test(operation.path);
    assert.ok(known, `${operation.path}: ${reply.status} ${reply.text}`);
  }
});

test("G1, S9: lists show their own tenant alone, whatever the filter", async () => {
  const mine = await bench.submit(bench.b, { name: "shared-name" });
  await bench.submit(bench.a, { name: "shared-name" });
  for (const query of ["", "?name=shared-name", "?state=queued"]) {
    const { items } = (await bench.call(bench.b, "GET", `/v1/jobs${query}`)).json<{
      items: { id: string }[];
    }>();
    assert.deepEqual(
      items.map(({ id }) => id),
      [mine.id],
    );
  }
  const lists = operations.filter(
    ({ method, path }) =>
      method === "GET" && path.startsWith("/v1/") && operations.some((one) => one.path === `${path}/{id}`),
  );
  const stranger = await bench.caller(bench.b.tenant, ["*"]);
  const theirs = new Set(
    (
      await bench.kernel.ask<{ id: string }>(
        "select job_id as id from holdfast.jobs where tenant_id = 'tenant-a' union all select agent_id from holdfast.agents where tenant_id = 'tenant-a' union all select command_id from holdfast.commands where tenant_id = 'tenant-a'",
      )
    ).map(({ id }) => id),
  );
  for (const { path } of lists) {
    const reply = await bench.call(stranger, "GET", path);
    assert.equal(reply.status, 200, `${path}: ${reply.text}`);
    for (const id of theirs) assert.ok(!reply.text.includes(id), path);
  }
});

test("G1, S9: a page token of one tenant is nothing to another", async () => {
  await bench.submit(bench.a);
  const page = await bench.call(bench.a, "GET", "/v1/jobs?limit=1");
  const token = page.json<{ next_page_token: string }>().next_page_token;
  assert.ok(token);
  const reply = await bench.call(bench.b, "GET", `/v1/jobs?limit=1&page_token=${token}`);
  assert.deepEqual([reply.status, reply.problem().code], [400, "invalid_cursor"]);
});

test("G1: every route but the public ones refuses a caller without a token, and documents it", async () => {
  for (const operation of operations) {
    const path = pathOf(operation, { id: uuidv7(), attempt: "1" });
    const reply = await bench.call(null, operation.method, path);
    if (!operation.secured) {
      assert.equal(reply.status, 200, path);
      continue;
    }
    assert.equal(reply.status, 401, path);
    assert.ok(operation.statuses.includes("401"), path);
  }
});
