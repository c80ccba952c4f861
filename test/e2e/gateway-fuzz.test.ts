import assert from "node:assert/strict";
import { after, test } from "node:test";
import fc from "fast-check";
import { Compile } from "typebox/compile";
import { errorCatalogue, isErrorCode } from "../../src/wire/errors.ts";
import { ProblemDocument } from "../../src/wire/problem.ts";
import { type ApiOperation, operationsOf } from "../support/api-document.ts";
import { openBench, submission } from "../support/gateway.ts";

const bench = await openBench({ after }, { limits: { bodyBytes: 50_000 }, queueMax: 100_000 });
const operations = operationsOf(bench.gateway().openapi()).filter(({ secured }) => secured);
const problemDocument = Compile(ProblemDocument);
const job = await bench.submit();

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
/** A submission with something in it replaced: near enough to get past the first check now and then. */
const nearlyRight = fc
  .tuple(fc.constantFrom(0, 1, 2, 3, 4, 5, 6), fc.jsonValue(), oddText)
  .map(([at, value, text]) => {
    const good = submission() as unknown as Record<string, Record<string, unknown>>;
    if (at === 0) return { ...good, [text]: value };
    if (at === 1) return { ...good, metadata: value };
    if (at === 2) return { ...good, metadata: { ...good["metadata"], labels: { [text]: text } } };
    if (at === 3) return { ...good, spec: { ...good["spec"], deadline: text } };
    if (at === 4) return { ...good, spec: { ...good["spec"], phases: value } };
    if (at === 5)
      return {
        ...good,
        spec: { phases: [{ name: "a", kind: "compile", command: [text], env: { A: text } }] },
      };
    return { labels: { [text]: value }, priority: value };
  });
const body = fc.oneof(
  { weight: 4, arbitrary: nearlyRight.map((value) => JSON.stringify(value)) },
  { weight: 2, arbitrary: fc.json() },
  { weight: 2, arbitrary: oddText },
);

function requestTo(operation: ApiOperation) {
  const query = operation.parameters.filter((parameter) => parameter.in === "query").map(({ name }) => name);
  return fc.record({
    id: fc.oneof(fc.constant(job.id), fc.uuid(), oddText),
    name: oddText,
    query: fc.array(fc.tuple(fc.constantFrom(...query, "unknown"), oddText), { maxLength: 3 }),
    body: operation.method === "GET" ? fc.constant(undefined) : fc.option(body, { nil: undefined }),
    key: fc.option(fc.string({ unit: "binary-ascii" }).filter(sendable), { nil: undefined }),
    ifMatch: fc.option(fc.oneof(fc.constantFrom("*", '"1"', 'W/"1"'), fc.string().filter(sendable)), {
      nil: undefined,
    }),
  });
}

// oxlint-disable-next-line no-control-regex -- what the test's own client would refuse to send
const sendable = (text: string) => /^[\t\u0020-\u007e]*$/.test(text);

for (const operation of operations) {
  // A live stream that was let in is what it should be; its end is tested elsewhere.
  if (operation.operationId === "watch") continue;
  test(`G11: nothing sent to ${operation.method} ${operation.path} makes it fail or hang`, async () => {
    await fc.assert(
      fc.asyncProperty(requestTo(operation), async ({ id, name, query, ...request }) => {
        const path = operation.path
          .replace("{id}", encodeURIComponent(id.toWellFormed()))
          .replace("{attempt}", encodeURIComponent(name.toWellFormed()))
          .replace("{name}", encodeURIComponent(name.toWellFormed()));
        const search = new URLSearchParams(
          query.filter(([field, value]) => !(field === "follow" && value === "true")),
        );
        const reply = await bench.call(bench.a, operation.method, `${path}?${search.toString()}`, {
          ...(request.body === undefined ? {} : { body: request.body }),
          ...(request.key === undefined ? {} : { key: request.key }),
          ...(request.ifMatch === undefined ? {} : { ifMatch: request.ifMatch }),
        });
        assert.ok(reply.status < 500, reply.text);
        if (reply.status < 400) return;
        const problem = reply.problem();
        assert.ok(problemDocument.Check(problem), reply.text);
        assert.ok(isErrorCode(problem.code));
        assert.equal(errorCatalogue[problem.code].status, reply.status);
      }),
      { numRuns: 60 },
    );
  });
}

test("G11: nothing in the query of the watch makes it fail", async () => {
  await fc.assert(
    fc.asyncProperty(oddText, oddText, async (after, kind) => {
      const search = new URLSearchParams({ after, kind });
      const reply = await bench.call(bench.a, "GET", `/v1/watch?${search.toString()}`);
      assert.ok(reply.status >= 400 && reply.status < 500, reply.text);
    }),
    { numRuns: 60 },
  );
});
