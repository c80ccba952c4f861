import assert from "node:assert/strict";
import { after, test } from "node:test";
import { uuidv7 } from "../../src/core/ids.ts";
import { type ApiOperation, operationsOf } from "../support/api-document.ts";
import { insertArtifact, insertAttempt } from "../support/attempt-rows.ts";
import { type Caller, openBench, type Reply, submission } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";

const bench = await openBench({ after });
const operations = operationsOf(bench.gateway().openapi());
const withId = operations.filter(({ path }) => path.includes("{id}"));

const bodies: Readonly<Record<string, unknown>> = {
  submitJob: submission(),
  patchJob: { labels: { stolen: "1" } },
  cancelJob: { reason: "stolen" },
};

function ask(operation: ApiOperation, who: Caller, id: string): Promise<Reply> {
  const path = operation.path.replace("{id}", id).replace("{attempt}", "1").replace("{name}", "site.html");
  const body = bodies[operation.operationId];
  return bench.call(who, operation.method, path, { ...(body === undefined ? {} : { body }), ifMatch: "*" });
}

/** All that a caller can see of an answer. */
const seen = (reply: Reply, id: string) => ({
  status: reply.status,
  headers: [...reply.headers]
    .filter(([name]) => name !== "date" && name !== "x-request-id")
    .toSorted(([a], [b]) => a.localeCompare(b)),
  body: reply.text.replaceAll(id, "ID").replace(/"request_id":"[^"]+"/, ""),
});

test("G1, S9: another tenant's job can't be told from one that isn't there, on every route", async () => {
  const job = await bench.submit(bench.a, { labels: { private: "yes" } });
  await insertAttempt(bench.kernel, tenantA, job.id, 1, ["build"]);
  const artifact = { name: "site.html", key: "a/site", bytes: 1, sha256: "0".repeat(64) };
  await insertArtifact(bench.kernel, tenantA, job.id, artifact);
  const before = await bench.kernel.ask("select * from holdfast.jobs order by job_id");
  assert.ok(withId.length >= 8);
  for (const operation of withId) {
    const absent = uuidv7();
    const [theirs, nobodys] = [await ask(operation, bench.b, job.id), await ask(operation, bench.b, absent)];
    assert.equal(theirs.status, 404, `${operation.method} ${operation.path}: ${theirs.text}`);
    assert.equal(theirs.problem().code, "not_found");
    assert.deepEqual(seen(theirs, job.id), seen(nobodys, absent), operation.path);
  }
  assert.deepEqual(await bench.kernel.ask("select * from holdfast.jobs order by job_id"), before);
  assert.deepEqual(
    await bench.kernel.ask("select * from holdfast.commands where tenant_id = 'tenant-b'"),
    [],
  );
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
    const path = operation.path.replace("{id}", uuidv7()).replace("{attempt}", "1").replace("{name}", "x");
    const reply = await bench.call(null, operation.method, path);
    if (!operation.secured) {
      assert.equal(reply.status, 200, path);
      continue;
    }
    assert.equal(reply.status, 401, path);
    assert.ok(operation.statuses.includes("401"), path);
  }
});
