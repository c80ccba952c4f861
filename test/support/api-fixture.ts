import { defineWork } from "../../src/work/define.ts";
import { legacy } from "../../src/work/policy.ts";
import { registerVersion } from "../../src/work/version.store.ts";
import { insertArtifact, insertAttempt } from "./attempt-rows.ts";
import { insertDelivery } from "./deliveries.ts";
import { type Bench, type Caller, submission } from "./gateway.ts";
import { insertCommit } from "./session-rows.ts";
import { loseWork } from "./work-rows.ts";

/** A collection of the API, and the ids in a path that lead to something in it. */
export type Fixtures = ReadonlyMap<string, Readonly<Record<string, string>>>;

/** One of everything that has an id, in a tenant's hands. */
export async function oneOfEverything(bench: Bench, who: Caller): Promise<Fixtures> {
  const { kernel } = bench;
  const made = async (path: string, body: unknown) => {
    const reply = await bench.call(who, "POST", path, { body });
    if (reply.status >= 300) throw new Error(reply.text);
    return reply.json<{ id: string }>().id;
  };
  const sha256 = "0".repeat(64);
  const job = await made("/v1/jobs", submission({ name: "one", labels: { private: "yes" } }));
  const { sandboxes } = await insertAttempt(kernel, who.tenant, job, 1, ["build"]);
  await insertArtifact(kernel, who.tenant, job, { name: "site.html", key: "a/site", bytes: 1, sha256 });
  const agent = await made("/v1/agents", {
    apiVersion: "holdfast/v1",
    kind: "Agent",
    metadata: { name: "one" },
    spec: { command: ["true"] },
  });
  const session = await made("/v1/sessions", { agent: "one" });
  const activation = await made(`/v1/sessions/${session}/activations`, { stimulus: { text: "hello" } });
  await insertCommit(
    kernel,
    who.tenant,
    { session, activation },
    { revision: 1, reply: {}, bundle: { key: "a/bundle", bytes: 1, sha256 } },
  );
  const waits = { name: "wait", version: "1" } as const;
  await registerVersion(
    kernel.db,
    defineWork({ ...waits, safety: "idempotent", policy: legacy(), run: () => null }),
  );
  const work = await made("/v1/work", { ...waits, input: { private: "yes" } });
  await loseWork(kernel.ask, work);
  const [command] = await kernel.ask<{ command_id: string }>(
    "select command_id from holdfast.commands where tenant_id = $1 limit 1",
    [who.tenant],
  );
  return new Map([
    ["/v1/jobs", { id: job, attempt: "1", name: "site.html", sandbox: sandboxes[0] ?? "" }],
    ["/v1/agents", { id: agent, version: "1" }],
    ["/v1/sessions", { id: session, activation, revision: "1" }],
    ["/v1/work", { id: work }],
    ["/v1/deliveries", { id: await insertDelivery(kernel, who.tenant, { state: "dead" }) }],
    ["/v1/commands", { id: command?.command_id ?? "" }],
  ]);
}
