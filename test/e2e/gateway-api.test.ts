import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { Compile } from "typebox/compile";
import { apiDocument } from "../../scripts/openapi/document.ts";
import { ApiError, type Client, createClient } from "../../src/client/client.ts";
import { apiRoutes } from "../../src/main/api.ts";
import { examine } from "../../src/main/doctor.ts";
import { type ApiOperation, operationsOf } from "../support/api-document.ts";
import { insertArtifact, insertAttempt } from "../support/attempt-rows.ts";
import { insertDelivery } from "../support/deliveries.ts";
import { openBench, submission } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";
import { memoryBlobs } from "../support/memory-blobs.ts";

const committed = JSON.parse(
  readFileSync(join(import.meta.dirname, "../../docs/reference/openapi.json"), "utf8"),
) as object;
const operations = operationsOf(committed);
const blobs = memoryBlobs();
const bench = await openBench({ after }, { blobs });
const { kernel } = bench;
const gateway = await bench.start({
  routes: apiRoutes({ blobs, queueMax: 100, examine: (tenant) => examine(kernel.db, tenant) }),
});
after(() => gateway.close());
const caller = await bench.caller(tenantA, ["*", "operator"]);

interface Exchange {
  readonly method: string;
  readonly path: string;
  readonly status: number;
  readonly body: string;
}
let exchanges: Exchange[] = [];

/** A client whose answers are kept as they came, but for those of streams. */
const client = createClient({
  url: gateway.address,
  token: caller.token,
  retry: { triesMax: 1 },
  async fetch(input, init) {
    const url = new URL(input instanceof Request ? input.url : input);
    const response = await fetch(input, init);
    const json = /json$/.test(response.headers.get("content-type")?.split(";")[0] ?? "");
    const body = json ? await response.clone().text() : "";
    exchanges.push({ method: init?.method ?? "GET", path: url.pathname, status: response.status, body });
    return response;
  },
});

const job = await client.submitJob(submission({ name: "documented" }));
const plan = {
  version: "holdfast.plan.v1",
  runtime: "process",
  pool: "default",
  deadline_us: "60000000",
  attempts: 1,
  sources: {},
  phases: [],
};
const attempt = await insertAttempt(kernel, tenantA, job.id, 1, ["build"], plan);
const bytes = Buffer.from("<p>published</p>");
const sha256 = createHash("sha256").update(bytes).digest("hex");
await insertArtifact(kernel, tenantA, job.id, {
  name: "site.html",
  key: "a/site",
  bytes: bytes.length,
  sha256,
});
blobs.objects.set("a/site", bytes);

const dead = await insertDelivery(kernel, tenantA, { state: "dead" });

async function first<T>(all: AsyncIterable<T>): Promise<T | undefined> {
  for await (const one of all) return one;
  return undefined;
}

/** Each operation, by the one call of the client that is made for it. */
const calls: Readonly<Record<string, (client: Client) => Promise<unknown>>> = {
  health: ({ health }) => health(),
  ready: ({ ready }) => ready(),
  openapi: ({ openapi }) => openapi(),
  doctor: ({ doctor }) => doctor({ tenant: tenantA }),
  submitJob: ({ submitJob }) => submitJob(submission()),
  listJobs: ({ listJobs }) => listJobs({ limit: 10 }).page(),
  getJob: ({ getJob }) => getJob(job.id),
  getJobSpec: ({ getJobSpec }) => getJobSpec(job.id),
  patchJob: async ({ patchJob, submitJob, etagOf }) => {
    const waiting = await submitJob(submission());
    await patchJob(waiting.id, { priority: 1 }, { ifMatch: etagOf(waiting) });
  },
  cancelJob: async ({ cancelJob, submitJob }) => cancelJob((await submitJob(submission())).id),
  listAttempts: ({ listAttempts }) => listAttempts(job.id),
  getAttempt: ({ getAttempt }) => getAttempt(job.id, 1),
  getAttemptPlan: ({ getAttemptPlan }) => getAttemptPlan(job.id, 1),
  confirmStopped: ({ confirmStopped }) =>
    confirmStopped({ job: job.id, attempt: 1, sandbox: attempt.sandboxes[0] ?? "" }, { reason: "seen" }),
  readLogs: ({ logs }) => first(logs(job.id)),
  listArtifacts: ({ listArtifacts }) => listArtifacts(job.id),
  downloadArtifact: async ({ downloadArtifact }) => {
    const { body } = await downloadArtifact(job.id, "site.html");
    assert.equal(await new Response(body).text(), bytes.toString());
  },
  listDeliveries: ({ listDeliveries }) => listDeliveries({ limit: 10 }).page(),
  getDelivery: ({ getDelivery }) => getDelivery(dead),
  redeliver: ({ redeliver }) => redeliver(dead),
  watch: async ({ listJobs, submitJob, watch }) => {
    const { cursor } = await listJobs({ limit: 1 }).page();
    await submitJob(submission());
    assert.equal((await first(watch({ after: cursor })))?.operation, "job.submitted");
  },
  listCommands: ({ listCommands }) => listCommands({ limit: 5 }).page(),
  getCommand: async ({ getCommand, listCommands }) => {
    const [command] = (await listCommands({ limit: 1 }).page()).items;
    await getCommand(command?.id ?? "");
  },
};

test("G15: the committed document is what the routes say", async () => {
  assert.deepEqual(
    committed,
    JSON.parse(JSON.stringify(await apiDocument())),
    "`npm run generate` writes it",
  );
});

test("G15: the document is what a running server serves", () => {
  const { info: _a, ...served } = gateway.openapi() as { info: object };
  const { info: _b, ...kept } = committed as { info: object };
  assert.deepEqual(JSON.parse(JSON.stringify(served)), kept);
});

test("G15: every operation has its call in the client, and no other is here", () => {
  assert.deepEqual(
    Object.keys(calls).toSorted(),
    operations.map(({ operationId }) => operationId).toSorted(),
  );
});

const shapeOf = (path: string) => new RegExp(`^${path.replace(/\{\w+\}/g, "[^/:]+")}$`);

for (const operation of operations) {
  test(`G15: ${operation.operationId} answers the client as its schema says`, async () => {
    exchanges = [];
    const failure = await calls[operation.operationId]?.(client).then(
      () => null,
      (error: unknown) => error,
    );
    // A refusal is an answer too; anything else is the client's own fault.
    if (failure !== null) assert.ok(failure instanceof ApiError, String(failure));
    const exchange = exchanges.findLast(
      ({ method, path }) => method === operation.method && shapeOf(operation.path).test(path),
    );
    assert.ok(exchange, "the client asked for something else");
    assert.ok(operation.statuses.includes(String(exchange.status)), `${exchange.status} ${exchange.body}`);
    if (operation.operationId !== "confirmStopped") assert.equal(failure, null, String(failure));
    checkAnswer(operation, exchange);
  });
}

function checkAnswer(operation: ApiOperation, { status, body }: Exchange): void {
  const schema = operation.answer(status);
  if (schema === null) return;
  const validator = Compile(schema);
  const value: unknown = JSON.parse(body);
  assert.ok(validator.Check(value), JSON.stringify([...validator.Errors(value)].slice(0, 3)));
}
