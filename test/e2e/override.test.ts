import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError } from "../../src/client/client.ts";
import type { Observation, Runtime } from "../../src/core/runtime.port.ts";
import { exitCodes } from "../../src/wire/exit-codes.ts";
import { runCommand } from "../support/run-command.ts";
import { shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

/** A runtime that can't be asked how things are while it is blind. What it is told to do, it does. */
function blindable(runtime: Runtime): { readonly runtime: Runtime; readonly blind: (is: boolean) => void } {
  let isBlind = false;
  const unproven: Observation = { state: "unproven", reason: "the host does not answer" };
  const observe: Runtime["observe"] = async (ref, signal) =>
    isBlind ? unproven : await runtime.observe(ref, signal);
  return {
    runtime: new Proxy(runtime, {
      get: (target, name) => {
        if (name === "observe") return observe;
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      },
    }),
    blind: (is) => {
      isBlind = is;
    },
  };
}

const isApiError = (error: unknown, code: string) => error instanceof ApiError && error.code === code;

test("E10 E14: an operator's word ends an attempt whose stop nothing proves, once, and is kept with its name", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  const { runtime, blind } = blindable(stack.runtime());
  await stack.controller(foundation, { runtime });
  const operator = await stack.gateway(foundation, { operator: true, scopes: ["jobs:read", "operator"] });
  const reader = await stack.gateway(foundation, { operator: true, scopes: ["jobs:read", "jobs:write"] });
  const job = await stack.submit(foundation, shellJob("lost", [{ run: "sleep 300" }], { deadline: "30s" }));

  const sandbox = await until("it runs", async () => {
    const [attempt] = await operator.client.listAttempts(job);
    return attempt?.sandboxes.find(({ state }) => state === "released") ?? null;
  });
  const where = { job, attempt: 1, sandbox: sandbox.id };
  const because = { reason: "the host was scrapped" };
  await assert.rejects(
    operator.client.confirmStopped(where, because),
    (error) => isApiError(error, "conflict"),
    "nothing is in question while it runs",
  );

  blind(true);
  await reader.client.cancelJob(job);
  const asked = await until("its stop is in question", async () => {
    const [attempt] = await operator.client.listAttempts(job);
    return attempt?.sandboxes.find(({ stop_unproven }) => stop_unproven !== null) ?? null;
  });
  assert.equal(asked.stop_unproven?.reason, "the host does not answer");
  const slots = "select count(*)::int as taken from holdfast.slots where attempt_id is not null";
  assert.deepEqual(await stack.rows(slots), [{ taken: 1 }]);

  await assert.rejects(
    reader.client.confirmStopped(where, because),
    (error) => isApiError(error, "forbidden"),
    "it takes an operator",
  );
  await assert.rejects(operator.client.confirmStopped({ ...where, sandbox: job }, because), (error) =>
    isApiError(error, "not_found"),
  );
  const env = { HOLDFAST_URL: operator.gateway.address, HOLDFAST_TOKEN: operator.token };
  const described = await runCommand(["describe", "job", job], { env });
  assert.match(described.stdout, /not been proven since .*: the host does not answer\. Its slot stays taken/);
  const silent = await runCommand(["confirm-stopped", job], { env });
  assert.deepEqual([silent.code, /--reason/.test(silent.stderr)], [exitCodes.usage, true]);

  const confirmed = await runCommand(["confirm-stopped", job, "--reason", because.reason], { env });
  assert.deepEqual([confirmed.code, confirmed.stderr], [exitCodes.ok, ""]);
  assert.match(confirmed.stdout, /counts as stopped by your word/);
  await until("the slot is back", async () => (await operator.client.getJob(job)).state === "cancelled");
  assert.deepEqual(await stack.rows(slots), [{ taken: 0 }]);
  await assert.rejects(
    operator.client.confirmStopped(where, because),
    (error) => isApiError(error, "conflict"),
    "once",
  );

  const [kept] = await stack.rows<Record<string, unknown>>(
    `select s.state, s.outcome, s.outcome_message, s.stop_unproven_reason, s.overridden_by = c.principal_id as same,
       c.operation, c.target, p.name, h.body ->> 'reason' as told
     from holdfast.sandbox_attempts s
     join holdfast.commands c on c.operation = 'jobs.confirm-stopped'
     join holdfast.principals p on p.principal_id = c.principal_id
     join holdfast.resource_changes h on h.operation = 'sandbox.overridden' and h.resource_id = s.owner_id
     where s.sandbox_id = $1`,
    [sandbox.id],
  );
  const { state: _, name, ...facts } = kept ?? {};
  assert.match(String(name), /^client-/);
  assert.deepEqual(facts, {
    outcome: "unknown",
    outcome_message: "An operator declared it stopped: the host was scrapped",
    stop_unproven_reason: "the host does not answer",
    same: true,
    operation: "jobs.confirm-stopped",
    target: `/v1/jobs/${job}/attempts/1/sandboxes/${sandbox.id}`,
    told: because.reason,
  });

  // The object itself is removed by its UID all the same, and the attempt is cleaned.
  blind(false);
  await until("it is cleaned", async () => (await operator.client.getAttempt(job, 1)).cleaned_at !== null);
  const after = await runCommand(["describe", "job", job], { env });
  assert.match(after.stdout, /Principal [0-9a-f-]{36} declared that it has stopped\./);
});
