import assert from "node:assert/strict";
import { after, test } from "node:test";
import { ApiError } from "../../src/client/client.ts";
import { uuidv7 } from "../../src/core/ids.ts";
import type { SessionView } from "../../src/wire/session.ts";
import { tenantA } from "../support/kernel.ts";
import { agentOf, all, openSessionApi, refused } from "../support/session-api.ts";
import { insertCommit } from "../support/session-rows.ts";

const { bench, kernel, clientFor, client, stranger, newAgent, newSession, send, raw } = await openSessionApi({
  after,
});
const codeOf = async (response: Response) => ((await response.json()) as { code?: string }).code;

test("an agent is made, found by its name, changed, and deleted; each template stays as it was", async () => {
  const agent = await client.createAgent({
    ...agentOf("keeper"),
    metadata: { name: "keeper", labels: { team: "web" } },
  });
  assert.deepEqual([agent.version, agent.spec, agent.labels], [1, { command: ["true"] }, { team: "web" }]);
  assert.deepEqual(await client.getAgent(agent.id), agent);
  assert.deepEqual(await all(client.listAgents({ name: "keeper" })), [agent]);
  assert.deepEqual(await all(client.listAgents({ labels: { team: "other" } })), []);
  await assert.rejects(client.createAgent(agentOf("keeper")), refused("conflict"));

  const ifMatch = client.etagOf(agent);
  const renewed = await client.patchAgent(
    agent.id,
    { spec: { command: ["false"] }, labels: { team: null, tier: "1" } },
    { ifMatch },
  );
  assert.deepEqual([renewed.version, renewed.labels], [2, { tier: "1" }]);
  // S5: the version that was seen is gone, so nothing changes.
  await assert.rejects(
    client.patchAgent(agent.id, { labels: {} }, { ifMatch }),
    refused("precondition_failed"),
  );
  assert.deepEqual((await client.getAgentTemplate(agent.id, 1)).spec, { command: ["true"] });
  assert.deepEqual((await client.getAgentTemplate(agent.id, 2)).spec, { command: ["false"] });
  await assert.rejects(client.getAgentTemplate(agent.id, 3), refused("not_found"));

  const session = await client.createSession({ agent: "keeper" });
  await assert.rejects(client.deleteAgent(agent.id), refused("conflict"));
  await client.deleteSession(session.id);
  await kernel.ask(
    "update holdfast.cloud_sessions set observed_state = 'deleted', observed_generation = generation, observed_at = now(), deleted_at = now() where session_id = $1",
    [session.id],
  );
  const deleted = await client.deleteAgent(agent.id);
  assert.notEqual(deleted.deleted_at, null);
  assert.deepEqual(await client.deleteAgent(agent.id), deleted);
  assert.equal((await client.createAgent(agentOf("keeper"))).version, 1);
});

test("G4: a session's labels, desired state and template version change under the version that was seen", async () => {
  const agent = await newAgent();
  await client.patchAgent(agent.id, { spec: { command: ["false"] } }, { ifMatch: client.etagOf(agent) });
  const session = await client.createSession({ agent: agent.name, agent_version: 1, labels: { who: "me" } });
  assert.deepEqual(
    [
      session.agent_version,
      session.generation,
      session.observed_generation,
      session.state,
      session.head_revision,
    ],
    [1, "1", "0", "pending", 0],
  );
  const ifMatch = client.etagOf(session);
  const patched = await client.patchSession(
    session.id,
    { labels: { who: null, what: "notes" }, desired_state: "suspended", agent_version: 2 },
    { ifMatch },
  );
  assert.deepEqual(
    [patched.labels, patched.desired_state, patched.agent_version, patched.generation],
    [{ what: "notes" }, "suspended", 2, "2"],
  );
  const rows = () => kernel.ask("select * from holdfast.cloud_sessions where session_id = $1", [session.id]);
  const before = await rows();
  await assert.rejects(
    client.patchSession(session.id, { desired_state: "active" }, { ifMatch }),
    refused("precondition_failed"),
  );
  const path = `/v1/sessions/${session.id}`;
  assert.equal(await codeOf(await raw("PATCH", path, { labels: {} })), "precondition_required");
  for (const [patch, code] of [
    [{ agent_version: 3 }, "not_found"],
    [{}, "invalid_request"],
    [{ desired_state: "deleted" }, "invalid_request"],
    [{ permissions: ["a"] }, "invalid_request"],
    [{ labels: { x: "\u0000" } }, "invalid_json"],
  ] as const) {
    assert.equal(
      await codeOf(await raw("PATCH", path, patch, { "if-match": "*" })),
      code,
      JSON.stringify(patch),
    );
  }
  assert.deepEqual(await rows(), before);
});

test("G10: a create followed at once by a patch is one session that wants the newest", async () => {
  const agent = await newAgent();
  await client.patchAgent(agent.id, { spec: { command: ["false"] } }, { ifMatch: client.etagOf(agent) });
  const session = await client.createSession({ agent: agent.name, agent_version: 1 });
  await client.patchSession(session.id, { agent_version: 2 }, { ifMatch: client.etagOf(session) });
  const due = await kernel.ask("select 1 from holdfast.leases where kind = 'session' and resource_id = $1", [
    session.id,
  ]);
  assert.equal(due.length, 1);
  const { agent_version, generation } = await client.getSession(session.id);
  assert.deepEqual([agent_version, generation], [2, "2"]);
});

test("G8: a deletion is never taken back, and deleting twice changes nothing", async () => {
  const session = await newSession();
  const activation = await send(session.id, "hello");
  await assert.rejects(client.deleteSession(session.id, { ifMatch: '"99"' }), refused("precondition_failed"));
  const deleted = await client.deleteSession(session.id);
  assert.equal(deleted.desired_state, "deleted");
  assert.deepEqual(await client.deleteSession(session.id), deleted);
  assert.equal((await client.getActivation(session.id, activation.id)).state, "cancelled");
  await assert.rejects(
    client.patchSession(session.id, { desired_state: "active" }, { ifMatch: client.etagOf(deleted) }),
    refused("conflict"),
  );
  await assert.rejects(send(session.id, "late"), refused("conflict"));
});

test("G3: an exact replay of any mutation gives the stored answer, also after the resource has moved on", async () => {
  const agent = await newAgent();
  const idempotencyKey = uuidv7();
  const session = await client.createSession({ agent: agent.name }, { idempotencyKey });
  await client.patchSession(session.id, { labels: { a: "1" } }, { ifMatch: client.etagOf(session) });
  assert.deepEqual(await client.createSession({ agent: agent.name }, { idempotencyKey }), session);
  await assert.rejects(
    client.createSession({ agent: agent.name, labels: { b: "2" } }, { idempotencyKey }),
    refused("idempotency_conflict"),
  );
  const key = uuidv7();
  const first = await client.admitActivation(session.id, { stimulus: { n: 1 } }, { idempotencyKey: key });
  await client.cancelActivation(session.id, first.id);
  assert.deepEqual(
    await client.admitActivation(session.id, { stimulus: { n: 1 } }, { idempotencyKey: key }),
    first,
  );
});

test("S14: whoever lists and then watches a session sees all that happens to it, and nothing of others", async () => {
  const session = await newSession();
  const { cursor } = await client.listActivations(session.id).page();
  await send((await newSession()).id, "elsewhere");
  const activation = await send(session.id, "hello");
  await client.cancelActivation(session.id, activation.id);
  const seen: string[] = [];
  for await (const change of client.watch({ after: cursor, session: session.id })) {
    assert.equal(change.root_id, session.id);
    seen.push(change.operation);
    if (change.operation === "activation.cancelled") break;
  }
  assert.deepEqual(
    seen.filter((operation) => operation.startsWith("activation.")),
    ["activation.admitted", "activation.cancelled"],
  );
  const both = await raw("GET", `/v1/watch?session=${session.id}&job=${session.id}`);
  assert.equal(await codeOf(both), "invalid_request");
});

test("sessions are listed newest first, by agent, state and labels", async () => {
  const agent = await newAgent();
  const made: SessionView[] = [];
  for (const n of ["1", "2", "3"]) {
    made.unshift(await client.createSession({ agent: agent.name, labels: { n } }));
  }
  assert.deepEqual(await all(client.listSessions({ agent: agent.name, limit: 2 })), made);
  assert.deepEqual(await all(client.listSessions({ agent: agent.name, labels: { n: "2" } })), [made[1]]);
  assert.deepEqual(await all(client.listSessions({ agent: agent.name, state: "idle" })), []);
  assert.deepEqual(await all(client.listSessions({ agent: "nobody-has-this" })), []);
});

test("what can't be an agent, a session or an activation is refused by its place, and changes nothing", async () => {
  const { id, agent } = await newSession();
  const count = () =>
    kernel.ask(
      `select (select count(*)::int from holdfast.agents) as agents, (select count(*)::int from holdfast.cloud_sessions) as sessions,
         (select count(*)::int from holdfast.activations) as activations, (select count(*)::int from holdfast.resource_changes) as changes`,
    );
  const before = await count();
  const line = `/v1/sessions/${id}/activations`;
  const spec = (change: object) => ({ ...agentOf("bad"), spec: { command: ["true"], ...change } });
  const cases: readonly (readonly [string, string, unknown, string])[] = [
    ["POST", "/v1/agents", "", "invalid_json"],
    ["POST", "/v1/agents", "{", "invalid_json"],
    ["POST", "/v1/agents", '{"kind":"Agent","kind":"Agent"}', "invalid_json"],
    ["POST", "/v1/agents", {}, "invalid_request"],
    ["POST", "/v1/agents", agentOf("Not A Name"), "invalid_request"],
    ["POST", "/v1/agents", spec({ command: [] }), "invalid_request"],
    ["POST", "/v1/agents", spec({ command: ["a\u0000b"] }), "invalid_json"],
    ["POST", "/v1/agents", spec({ env: { HOLDFAST_TOKEN: "x" } }), "invalid_request"],
    ["POST", "/v1/agents", spec({ timeout: "4h" }), "invalid_request"],
    ["POST", "/v1/agents", spec({ timeout: "0s" }), "invalid_request"],
    ["POST", "/v1/agents", spec({ tries: 6 }), "invalid_request"],
    [
      "POST",
      "/v1/agents",
      spec({ env: { A: "x".repeat(32_768), B: "x".repeat(32_768) } }),
      "invalid_request",
    ],
    ["POST", "/v1/agents", spec({ destinations: [{ name: "a", url: "ftp://x" }] }), "invalid_request"],
    ["POST", "/v1/agents", spec({ unknown: true }), "invalid_request"],
    ["POST", "/v1/sessions", {}, "invalid_request"],
    ["POST", "/v1/sessions", { agent: "nobody-has-this" }, "not_found"],
    ["POST", "/v1/sessions", { agent, agent_version: 2 }, "not_found"],
    ["POST", "/v1/sessions", { agent, agent_version: 0 }, "invalid_request"],
    ["POST", "/v1/sessions", { agent, labels: { "": "x" } }, "invalid_request"],
    ["POST", "/v1/sessions", { agent, from: { session_id: id, revision: 1 } }, "not_found"],
    ["POST", line, "", "invalid_json"],
    ["POST", line, {}, "invalid_request"],
    ["POST", line, { stimulus: "text" }, "invalid_request"],
    ["POST", line, { stimulus: [] }, "invalid_request"],
    ["POST", line, { stimulus: null }, "invalid_request"],
    ["POST", line, { stimulus: {}, id: "not-a-uuid" }, "invalid_request"],
    ["POST", line, { stimulus: {}, again: true }, "invalid_request"],
    ["POST", line, '{"stimulus":{"a":1,"a":2}}', "invalid_json"],
    ["POST", line, '{"stimulus":{"a":"\\u0000"}}', "invalid_json"],
    ["POST", line, '{"stimulus":{"a":9007199254740993}}', "invalid_json"],
    ["POST", line, { stimulus: { text: "x".repeat(65_536) } }, "payload_too_large"],
    ["POST", line, { stimulus: { text: "x".repeat(300_000) } }, "payload_too_large"],
    ["POST", line, `{"stimulus":${'{"a":'.repeat(40)}1${"}".repeat(40)}}`, "invalid_json"],
    ["GET", `${line}?order=sideways`, undefined, "invalid_request"],
    ["GET", `${line}?limit=0`, undefined, "invalid_request"],
    ["GET", `${line}?page_token=x`, undefined, "invalid_cursor"],
    ["GET", "/v1/sessions?label=x", undefined, "invalid_request"],
    ["GET", "/v1/sessions?label=a=1&label=a=2", undefined, "invalid_request"],
    ["GET", `/v1/sessions/${id}/revisions/0`, undefined, "not_found"],
    ["GET", `/v1/sessions/${id}/revisions/${"9".repeat(30)}`, undefined, "not_found"],
    ["GET", "/v1/sessions/not-a-uuid", undefined, "not_found"],
    ["PUT", `/v1/sessions/${id}`, {}, "method_not_allowed"],
  ];
  for (const [method, path, body, code] of cases) {
    const response = await raw(method, path, body);
    assert.equal(await codeOf(response), code, `${method} ${path} ${JSON.stringify(body)?.slice(0, 100)}`);
  }
  assert.deepEqual(await count(), before);
});

test("G1, S9: another tenant's agents, sessions, turns and revisions can't be told from ones that aren't there", async () => {
  const session = await newSession();
  const activation = await send(session.id, "secret");
  const turn = { session: session.id, activation: activation.id };
  await insertCommit(kernel, tenantA, turn, { revision: 1, reply: {}, bundle: null });
  const ifMatch = "*";
  const calls: Readonly<Record<string, (s: string, a: string, g: string) => Promise<unknown>>> = {
    getAgent: (_s, _a, g) => stranger.getAgent(g),
    getAgentTemplate: (_s, _a, g) => stranger.getAgentTemplate(g, 1),
    patchAgent: (_s, _a, g) => stranger.patchAgent(g, { labels: { x: "1" } }, { ifMatch }),
    deleteAgent: (_s, _a, g) => stranger.deleteAgent(g),
    getSession: (s) => stranger.getSession(s),
    patchSession: (s) => stranger.patchSession(s, { desired_state: "closed" }, { ifMatch }),
    deleteSession: (s) => stranger.deleteSession(s),
    grantPermission: (s) => stranger.grantPermission(s, "a"),
    admitActivation: (s) => stranger.admitActivation(s, { stimulus: {} }),
    listActivations: (s) => stranger.listActivations(s).page(),
    getActivation: (s, a) => stranger.getActivation(s, a),
    cancelActivation: (s, a) => stranger.cancelActivation(s, a),
    retryActivation: (s, a) => stranger.retryActivation(s, a),
    listRevisions: (s) => stranger.listRevisions(s).page(),
    getRevision: (s) => stranger.getRevision(s, 1),
    downloadBundle: (s) => stranger.downloadBundle(s, 1),
  };
  const problemOf = async (answer: Promise<unknown>) => {
    const error = await answer.then(
      () => undefined,
      (fault: unknown) => fault,
    );
    assert.ok(error instanceof ApiError);
    return [error.code, error.detail];
  };
  const before = await kernel.ask("select * from holdfast.cloud_sessions order by session_id");
  for (const [name, call] of Object.entries(calls)) {
    const theirs = await problemOf(call(session.id, activation.id, session.agent_id));
    const nobodys = await problemOf(call(uuidv7(), uuidv7(), uuidv7()));
    assert.equal(theirs[0], "not_found", name);
    assert.deepEqual(theirs, nobodys, name);
  }
  await assert.rejects(stranger.createSession({ agent: session.agent }), refused("not_found"));
  assert.deepEqual(await all(stranger.listSessions()), []);
  assert.deepEqual(await all(stranger.listAgents()), []);
  assert.deepEqual(await kernel.ask("select * from holdfast.cloud_sessions order by session_id"), before);
});

test("G1: a token does what its scopes say, and one narrowed to a session reaches no other", async () => {
  const session = await newSession();
  const other = await newSession();
  const reader = clientFor((await bench.caller(tenantA, ["sessions:read"])).token);
  assert.equal((await reader.getSession(session.id)).id, session.id);
  await assert.rejects(reader.admitActivation(session.id, { stimulus: {} }), refused("forbidden"));
  await assert.rejects(reader.getAgent(session.agent_id), refused("forbidden"));
  const narrowed = clientFor((await bench.caller(tenantA, [`sessions:write:${session.id}`])).token);
  assert.equal((await narrowed.admitActivation(session.id, { stimulus: {} })).ordinal, 1);
  await assert.rejects(narrowed.admitActivation(other.id, { stimulus: {} }), refused("forbidden"));
  const watcher = clientFor((await bench.caller(tenantA, [`watch:read:${session.id}`])).token);
  const { cursor } = await client.listActivations(session.id).page();
  await send(session.id, "seen");
  for await (const change of watcher.watch({ after: cursor, session: session.id })) {
    assert.equal(change.root_id, session.id);
    break;
  }
  await assert.rejects(all(watcher.watch({ session: other.id })), refused("forbidden"));
});
