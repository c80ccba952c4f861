import assert from "node:assert/strict";
import { test } from "node:test";
import { runCommand } from "../support/run-command.ts";
import { shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

test("G12: what waits for a controller that nobody runs is admitted, says so, and goes on when one comes", async (t) => {
  const stack = await testStack(t);
  const { gateway, token, client } = await stack.gateway(await stack.foundation("gateway"), {
    scopes: ["*"],
  });
  const told = async (...words: string[]) => {
    const env = { HOLDFAST_URL: gateway.address, HOLDFAST_TOKEN: token };
    const { code, stdout, stderr } = await runCommand(words, { env });
    assert.equal(code, 0, stderr);
    return stdout;
  };
  const turn = async (runtime: "process" | "kubernetes") => {
    await client.createAgent({
      apiVersion: "holdfast/v1",
      kind: "Agent",
      metadata: { name: `on-${runtime}` },
      spec: { command: ["true"], runtime, tries: 1 },
    });
    const { id: session } = await client.createSession({ agent: `on-${runtime}` });
    const { id } = await client.admitActivation(session, { stimulus: { text: "hello" } });
    return { session, blocked: async () => (await client.getActivation(session, id)).blocked?.message, id };
  };
  const here = await turn("process");
  const elsewhere = await turn("kubernetes");
  const job = await client.submitJob(shellJob("waits", [{ run: "true" }]));
  const jobBlocked = async () => (await client.getJob(job.id)).blocked?.message;

  const nobody = "No controller has the runtime process; none is alive: it waits until one is started.";
  assert.equal(await here.blocked(), nobody);
  assert.equal((await client.getSession(here.session)).blocked?.code, "no_controller");
  assert.equal(await jobBlocked(), "No controller is alive: it waits until one is started.");
  assert.match(
    await told("session", "history", here.session),
    /queued\. No controller has the runtime process/,
  );
  assert.match(
    await told("describe", "session", here.session),
    /Blocked +No controller has the runtime process/,
  );
  assert.match(await told("describe", "job", job.id), /queued\. No controller is alive/);

  await stack.controller(await stack.foundation("controller"));
  await until("the turn has ended", async () => {
    const { state, blocked } = await client.getActivation(here.session, here.id);
    return state === "failed" && blocked === undefined;
  });
  assert.equal((await client.getSession(here.session)).blocked, undefined);
  await until("the job is over", async () => {
    const { state, blocked } = await client.getJob(job.id);
    return state === "succeeded" && blocked === undefined;
  });
  assert.equal(
    await elsewhere.blocked(),
    "No controller has the runtime kubernetes; those that are alive have process: it waits until one is started.",
  );
  assert.match(
    await told("describe", "session", elsewhere.session),
    /Blocked +No controller has the runtime kub/,
  );
  // What nobody can run leaves nothing behind.
  await client.cancelActivation(elsewhere.session, elsewhere.id);
  assert.equal(await elsewhere.blocked(), undefined);
});
