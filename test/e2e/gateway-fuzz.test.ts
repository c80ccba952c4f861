import assert from "node:assert/strict";
import { after, test } from "node:test";
import fc, { type Arbitrary } from "fast-check";
import { Compile } from "typebox/compile";
import { errorCatalogue, isErrorCode } from "../../src/wire/errors.ts";
import { ProblemDocument } from "../../src/wire/problem.ts";
import { type ApiOperation, operationsOf, pathOf } from "../support/api-document.ts";
import { oneOfEverything } from "../support/api-fixture.ts";
import { openBench, submission } from "../support/gateway.ts";
import { memoryBlobs } from "../support/memory-blobs.ts";
import { fitting, nearly } from "../support/schema-arbitrary.ts";
import { until } from "../support/until.ts";

const limits = { bodyBytes: 50_000, rate: null };
const bench = await openBench({ after }, { limits, queueMax: 100_000, blobs: memoryBlobs() });
const operations = operationsOf(bench.gateway().openapi()).filter(({ secured }) => secured);
const problemDocument = Compile(ProblemDocument);
const fixtures = await oneOfEverything(bench, bench.a);

const oddText = fc.oneof(
  fc.string(),
  fc.string({ unit: "binary" }),
  fc.constantFrom(
    "__proto__",
    "constructor",
    "\u0000",
    "*",
    "..",
    "%",
    "'; drop table",
    "true",
    "-1",
    "9".repeat(30),
  ),
);

/** What fits a schema is seldom what the server takes: where it can be said, what it does take. */
const wait = { name: "wait", version: "1" };
const seeds: ReadonlyMap<string, unknown> = new Map<string, unknown>([
  ["submitJob", submission()],
  ["submitWork", { ...wait, input: { cents: 1 } }],
  [
    "submitWorkBatch",
    {
      ...wait,
      items: [
        { input: 1, key: "one" },
        { input: "two", delay: "1h" },
      ],
    },
  ],
]);

/** Bodies that fit the schema, that nearly fit it, that are JSON, and that are nothing. */
function bodyOf({ operationId, body }: ApiOperation): Arbitrary<string> {
  const good = seeds.get(operationId);
  const generated = fitting(body ?? {});
  const sound = good === undefined ? generated : fc.oneof(fc.constant(good), generated);
  return fc.oneof(
    { weight: 4, arbitrary: sound.map((value) => JSON.stringify(value)) },
    {
      weight: 5,
      arbitrary: nearly(sound, fc.oneof(oddText, fc.jsonValue())).map((value) => JSON.stringify(value) ?? ""),
    },
    { weight: 1, arbitrary: fc.json() },
    { weight: 1, arbitrary: oddText },
  );
}

const optional = <T>(arbitrary: Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });
// oxlint-disable-next-line no-control-regex -- what the test's own client would refuse to send
const sendable = (text: string) => /^[\t\u0020-\u007e]*$/.test(text);

type Asked = ReturnType<typeof requestTo> extends Arbitrary<infer Request> ? Request : never;

function requestTo(operation: ApiOperation) {
  const known = fixtures.get(operation.path.replace(/\/\{id\}.*$/, "")) ?? {};
  const parameters = operation.parameters.filter((parameter) => parameter.in === "path");
  const query = operation.parameters.filter((parameter) => parameter.in === "query");
  return fc.record({
    path: fc.record(
      Object.fromEntries(
        parameters.map(({ name }) => [
          name,
          // Mostly what is there, so that what comes after the look-up is reached.
          fc.oneof(
            { weight: 6, arbitrary: fc.constant(known[name] ?? "1") },
            { weight: 1, arbitrary: fc.uuid() },
            { weight: 1, arbitrary: oddText },
          ),
        ]),
      ),
    ),
    query: fc.array(
      fc.oneof(
        ...query.map(({ name, schema }) =>
          fc.oneof(fitting(schema), oddText).map((value): [string, string] => [name, String(value)]),
        ),
        fc.tuple(fc.constant("unknown"), oddText),
      ),
      { maxLength: 3 },
    ),
    body: operation.body === null ? fc.constant(undefined) : optional(bodyOf(operation)),
    key: optional(fc.string({ unit: "binary-ascii" }).filter(sendable)),
    ifMatch: optional(fc.oneof(fc.constantFrom("*", '"1"', 'W/"1"'), fc.string().filter(sendable))),
    ifNoneMatch: optional(fc.constantFrom("*", '"1"', "")),
  });
}

/** What the server takes as it is, tried first: chance alone seldom gets all of a request right. */
const goodOnes = ({ operationId }: ApiOperation): [Asked][] => {
  const good = seeds.get(operationId);
  if (good === undefined) return [];
  return [
    [
      {
        path: {},
        query: [],
        body: JSON.stringify(good),
        key: undefined,
        ifMatch: undefined,
        ifNoneMatch: undefined,
      },
    ],
  ];
};

const reached = new Set<string>();
for (const operation of operations) {
  // A live stream that was let in is what it should be; its end is tested elsewhere.
  if (operation.operationId === "watch") continue;
  test(`G11: nothing sent to ${operation.method} ${operation.path} makes it fail or hang`, async () => {
    await fc.assert(
      fc.asyncProperty(requestTo(operation), async ({ path, query, body, key, ifMatch, ifNoneMatch }) => {
        const search = new URLSearchParams(
          query.filter(([field, value]) => !(field === "follow" && value === "true")),
        );
        const reply = await bench.call(
          bench.a,
          operation.method,
          `${pathOf(operation, path)}?${search.toString()}`,
          {
            ...(body === undefined ? {} : { body }),
            ...(key === undefined ? {} : { key }),
            ...(ifMatch === undefined ? {} : { ifMatch }),
            ...(ifNoneMatch === undefined ? {} : { headers: { "if-none-match": ifNoneMatch } }),
          },
        );
        assert.ok(reply.status < 500, reply.text);
        reached.add(`${operation.operationId} ${reply.status}`);
        if (reply.status < 400) return;
        const problem = reply.problem();
        assert.ok(problemDocument.Check(problem), reply.text);
        assert.ok(isErrorCode(problem.code));
        assert.equal(errorCatalogue[problem.code].status, reply.status);
      }),
      { numRuns: 30, examples: goodOnes(operation) },
    );
  });
}

test("G11: nothing in the query of the watch makes it fail", async () => {
  await fc.assert(
    fc.asyncProperty(oddText, oddText, async (cursor, kind) => {
      const search = new URLSearchParams({ after: cursor, kind });
      const reply = await bench.call(bench.a, "GET", `/v1/watch?${search.toString()}`);
      assert.ok(reply.status >= 400 && reply.status < 500, reply.text);
    }),
    { numRuns: 60 },
  );
});

test("G11: after all of it nothing is left open, and much of it went past the first check", async () => {
  const gets = operations.filter(({ method, path }) => method === "GET" && !/watch|doctor/.test(path));
  const found = gets.filter(({ operationId }) => reached.has(`${operationId} 200`));
  assert.ok(found.length >= gets.length - 3, String(found.map(({ operationId }) => operationId)));
  for (const call of ["submitJob", "submitWork", "submitWorkBatch"])
    assert.ok(reached.has(`${call} 201`), "a generated body was good");
  await until("no connection is in the middle of something", async () => {
    const open = await bench.kernel.ask(
      `select state, query from pg_stat_activity
       where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend' and state <> 'idle'
         and query not like '%lookout%' and (state like 'idle in%' or now() - query_start > interval '1 s')`,
    );
    return open.length === 0;
  });
  const pool = bench.kernel.db.pools.of("gateway");
  assert.deepEqual([pool.waitingCount, pool.totalCount - pool.idleCount], [0, 0]);
  assert.equal(bench.gateway().openStreams(), 0);
});
