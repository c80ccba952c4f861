import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { Compile } from "typebox/compile";
import { apiDocument } from "../../scripts/openapi/document.ts";
import { ApiError, type Client, createClient } from "../../src/client/client.ts";
import { brandId } from "../../src/core/ids.ts";
import { createTenant } from "../../src/core/tenant.store.ts";
import { seconds } from "../../src/core/time.ts";
import { apiRoutes } from "../../src/main/api.ts";
import { examine } from "../../src/main/doctor.ts";
import type { AgentSubmission } from "../../src/wire/agent.ts";
import { defineWork } from "../../src/work/define.ts";
import { legacy, planned } from "../../src/work/policy.ts";
import { registerVersion } from "../../src/work/version.store.ts";
import { type ApiOperation, operationsOf } from "../support/api-document.ts";
import { insertArtifact, insertAttempt } from "../support/attempt-rows.ts";
import { insertDelivery } from "../support/deliveries.ts";
import { openBench, submission } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";
import { memoryBlobs } from "../support/memory-blobs.ts";
import { insertCommit, insertWaiting } from "../support/session-rows.ts";
import { loseWork } from "../support/work-rows.ts";

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
    const json = response.headers.get("content-type")?.split(";")[0]?.endsWith("json") === true;
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

const agentFile = (name: string): AgentSubmission => ({
  apiVersion: "holdfast/v1",
  kind: "Agent",
  metadata: { name },
  spec: { command: ["true"] },
});
const agent = await client.createAgent(agentFile("documented"));
const session = await client.createSession({ agent: agent.name });
const admit = () => client.admitActivation(session.id, { stimulus: { text: "hello" } });
const activation = await admit();
blobs.objects.set("a/bundle", bytes);
await insertCommit(
  kernel,
  tenantA,
  { session: session.id, activation: activation.id },
  { revision: 1, reply: {}, bundle: { key: "a/bundle", bytes: bytes.length, sha256 } },
);

const [wait, slotted] = [
  defineWork({ name: "wait", version: "1", safety: "idempotent", policy: legacy(), run: () => null }),
  defineWork({
    name: "slotted",
    version: "1",
    safety: "manual_resolution",
    policy: planned({ version: "a", offsets: [seconds(0), seconds(60)], circuit: seconds(300) }),
    run: () => null,
  }),
];
for (const work of [wait, slotted]) await registerVersion(kernel.db, work);
const submitWork = async (api: Client, name = "wait") =>
  (await api.submitWork({ name, version: "1", input: { cents: 1 } })).id;
const suspended = async (api: Client) => {
  const id = await submitWork(api);
  await api.suspendWork(id);
  return id;
};
const someWork = await submitWork(client, "slotted");

async function first<T>(all: AsyncIterable<T>): Promise<T | undefined> {
  for await (const one of all) return one;
  return undefined;
}

/** Each operation, by the one call of the client that is made for it. */
const calls: Readonly<Record<string, (client: Client) => Promise<unknown>>> = {
  health: (api) => api.health(),
  ready: (api) => api.ready(),
  openapi: (api) => api.openapi(),
  doctor: (api) => api.doctor({ tenant: tenantA }),
  getOverview: (api) => api.getOverview(),
  listLeases: (api) => api.listLeases({ kind: "admission" }),
  getSystem: (api) => api.getSystem(),
  submitJob: (api) => api.submitJob(submission()),
  listJobs: (api) => api.listJobs({ limit: 10 }).page(),
  getJob: (api) => api.getJob(job.id),
  getJobSpec: (api) => api.getJobSpec(job.id),
  patchJob: async (api) => {
    const waiting = await api.submitJob(submission());
    await api.patchJob(waiting.id, { priority: 1 }, { ifMatch: api.etagOf(waiting) });
  },
  cancelJob: async (api) => api.cancelJob((await api.submitJob(submission())).id),
  listAttempts: (api) => api.listAttempts(job.id),
  getAttempt: (api) => api.getAttempt(job.id, 1),
  getAttemptPlan: (api) => api.getAttemptPlan(job.id, 1),
  confirmStopped: (api) =>
    api.confirmStopped({ job: job.id, attempt: 1, sandbox: attempt.sandboxes[0] ?? "" }, { reason: "seen" }),
  readLogs: (api) => first(api.logs(job.id)),
  listArtifacts: (api) => api.listArtifacts(job.id),
  downloadArtifact: async (api) => {
    const { body } = await api.downloadArtifact(job.id, "site.html");
    assert.equal(await new Response(body).text(), bytes.toString());
  },
  listDeliveries: (api) => api.listDeliveries({ limit: 10 }).page(),
  getDelivery: (api) => api.getDelivery(dead),
  redeliver: (api) => api.redeliver(dead),
  watch: async (api) => {
    const { cursor } = await api.listJobs({ limit: 1 }).page();
    await api.submitJob(submission());
    assert.equal((await first(api.watch({ after: cursor })))?.operation, "job.submitted");
  },
  createAgent: (api) => api.createAgent(agentFile("another")),
  listAgents: (api) => api.listAgents({ limit: 5 }).page(),
  getAgent: (api) => api.getAgent(agent.id),
  getAgentTemplate: (api) => api.getAgentTemplate(agent.id, 1),
  patchAgent: (api) => api.patchAgent(agent.id, { labels: { a: "1" } }, { ifMatch: "*" }),
  deleteAgent: async (api) => api.deleteAgent((await api.createAgent(agentFile("short"))).id),
  createSession: (api) => api.createSession({ agent: agent.name }),
  listSessions: (api) => api.listSessions({ limit: 5 }).page(),
  getSession: (api) => api.getSession(session.id),
  patchSession: (api) => api.patchSession(session.id, { labels: { a: "1" } }, { ifMatch: "*" }),
  deleteSession: async (api) => api.deleteSession((await api.createSession({ agent: agent.name })).id),
  grantPermission: (api) => api.grantPermission(session.id, "notes.write"),
  admitActivation: (api) => api.admitActivation(session.id, { stimulus: {} }),
  listActivations: (api) => api.listActivations(session.id).page(),
  getActivation: (api) => api.getActivation(session.id, activation.id),
  cancelActivation: async (api) => api.cancelActivation(session.id, (await admit()).id),
  retryActivation: async (api) => {
    const own = await api.createSession({ agent: agent.name });
    const { id } = await api.admitActivation(own.id, { stimulus: {} });
    const action = { type: "retry_activation", reason: "once more" } as const;
    await insertWaiting(kernel, tenantA, { session: own.id, activation: id }, action);
    await api.retryActivation(own.id, id);
  },
  listRevisions: (api) => api.listRevisions(session.id).page(),
  getRevision: (api) => api.getRevision(session.id, 1),
  downloadBundle: async (api) => {
    const { body } = await api.downloadBundle(session.id, 1);
    assert.equal(await new Response(body).text(), bytes.toString());
  },
  submitWork: (api) => submitWork(api),
  submitWorkBatch: (api) =>
    api.submitWorkBatch({ name: "wait", version: "1", items: [{ input: 1 }, { input: null }] }),
  listWork: (api) => api.listWork({ limit: 5 }).page(),
  getWork: (api) => api.getWork(someWork),
  getWorkPayload: (api) => api.getWorkPayload(someWork),
  cancelWork: async (api) => api.cancelWork(await submitWork(api), { reason: "not wanted" }),
  resolveWork: async (api) => {
    const id = await submitWork(api);
    await loseWork(kernel.ask, id);
    await api.resolveWork(id, { verdict: "applied", note: "seen at the bank", result: 1 });
  },
  releaseWork: async (api) => api.releaseWork(await suspended(api)),
  requeueWork: async (api) => api.requeueWork(await suspended(api)),
  suspendWork: (api) => suspended(api),
  listWorkVersions: (api) => api.listWorkVersions(),
  retireWorkVersion: async (api) => {
    await registerVersion(kernel.db, { ...wait, version: "2" });
    await api.retireWorkVersion("wait", "2");
  },
  disableTenant: async (api) => {
    await createTenant(kernel.db, brandId("closing"));
    await api.disableTenant("closing", { confirm: "closing" });
  },
  listCommands: (api) => api.listCommands({ limit: 5 }).page(),
  getCommand: async (api) => {
    const [command] = (await api.listCommands({ limit: 1 }).page()).items;
    await api.getCommand(command?.id ?? "");
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
    if (failure !== null) assert.ok(failure instanceof ApiError, "the client failed by itself");
    const exchange = exchanges.findLast(
      ({ method, path }) => method === operation.method && shapeOf(operation.path).test(path),
    );
    assert.ok(exchange, "the client asked for something else");
    assert.ok(operation.statuses.includes(String(exchange.status)), `${exchange.status} ${exchange.body}`);
    if (operation.operationId !== "confirmStopped") assert.equal(failure, null, exchange.body);
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
