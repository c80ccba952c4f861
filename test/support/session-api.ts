import assert from "node:assert/strict";
import { ApiError, type Client, createClient } from "../../src/client/client.ts";
import { apiRoutes } from "../../src/main/api.ts";
import type { ActivationView } from "../../src/wire/activation.ts";
import type { AgentSpec, AgentSubmission, AgentView } from "../../src/wire/agent.ts";
import type { SessionView } from "../../src/wire/session.ts";
import { openBench } from "./gateway.ts";
import { memoryBlobs } from "./memory-blobs.ts";

export const agentOf = (name: string, spec: Partial<AgentSpec> = {}): AgentSubmission => ({
  apiVersion: "holdfast/v1",
  kind: "Agent",
  metadata: { name },
  spec: { command: ["true"], ...spec },
});

/** For `assert.rejects`: the server refused it with this code. */
export const refused = (code: string) => (error: unknown) => {
  assert.ok(error instanceof ApiError, String(error));
  assert.equal(error.code, code, error.detail);
  return true;
};

export async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

/** A gateway with the routes of sessions, a client of it, and one of another tenant. A line holds three turns. */
export async function openSessionApi(scope: Parameters<typeof openBench>[0]) {
  const blobs = memoryBlobs();
  const bench = await openBench(scope, { blobs });
  const gateway = await bench.start({
    routes: apiRoutes({ blobs, queueMax: 100, activationQueueMax: 3, examine: null }),
  });
  scope.after(() => gateway.close());
  const clientFor = (token: string): Client =>
    createClient({ url: gateway.address, token, retry: { triesMax: 1 } });
  const client = clientFor(bench.a.token);
  let agents = 0;
  const newAgent = (): Promise<AgentView> => {
    agents += 1;
    return client.createAgent(agentOf(`agent-${agents}`));
  };
  return {
    bench,
    blobs,
    kernel: bench.kernel,
    clientFor,
    client,
    stranger: clientFor(bench.b.token),
    newAgent,
    newSession: async (): Promise<SessionView> => client.createSession({ agent: (await newAgent()).name }),
    send: (session: string, text: string, id?: string): Promise<ActivationView> =>
      client.admitActivation(session, { stimulus: { text }, ...(id === undefined ? {} : { id }) }),
    raw: (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) =>
      fetch(`${gateway.address}${path}`, {
        method,
        headers: { authorization: `Bearer ${bench.a.token}`, "content-type": "application/json", ...headers },
        ...(body === undefined ? {} : { body: typeof body === "string" ? body : JSON.stringify(body) }),
      }),
  };
}
