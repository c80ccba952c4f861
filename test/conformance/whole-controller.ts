import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { JobId } from "../../src/core/ids.ts";
import { transition } from "../../src/core/postgres/transition.ts";
import type { Runtime } from "../../src/core/runtime.port.ts";
import { cancelJob } from "../../src/executions/job.store.ts";
import type { Foundation } from "../../src/main/process.ts";
import { type Stack, type StackScope, shellJob, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";
import { collect } from "./runtime.ts";

/** A world where pods run: the double with its node, or a cluster. */
export interface PodWorld {
  readonly runtime: (installation: string) => Runtime;
  readonly close: () => Promise<void>;
}

const never = new AbortController().signal;
/** Pulling an image may take its time. */
const endMs = 180_000;

/** What a controller does with pods from a job's submission until nothing of it is left. No pod calls back. */
export function wholeController(name: string, openWorld: () => Promise<PodWorld>): void {
  describe(`controllers with pods: ${name}`, () => {
    async function open(scope: StackScope) {
      const world = await openWorld();
      const stack = await testStack(scope);
      scope.after(() => world.close());
      const runtime = () => world.runtime(stack.installation);
      const controller = async () => {
        const foundation = await stack.foundation("controller");
        return { foundation, running: await stack.controller(foundation, { runtime: runtime() }) };
      };
      return { stack, controller, left: () => collect(runtime().list(never)) };
    }

    test("E14 E16 E19: a job's phases run one after the other, its output is kept, and no pod is left", async (t) => {
      const { stack, controller, left } = await open(t);
      const { foundation } = await controller();
      const phases = ["one", "two", "three"].map((word) => ({ run: `echo ${word}; sleep 1` }));
      const job = await stack.submit(foundation, shellJob("three", phases));
      assert.deepEqual(await endOf(stack, job), { state: "succeeded", code: null, message: null });
      const { client } = await stack.gateway(foundation);
      const lines: string[] = [];
      for await (const { text } of client.logs(job)) lines.push(text);
      assert.deepEqual(lines, ["one", "two", "three"]);
      assert.deepEqual(await left(), []);
    });

    test("E10: a phase that fails ends the attempt with its exit code, and the next is never made", async (t) => {
      const { stack, controller, left } = await open(t);
      const { foundation } = await controller();
      const job = await stack.submit(
        foundation,
        shellJob("fails", [{ run: "exit 7" }, { run: "echo never" }]),
      );
      const end = await endOf(stack, job);
      assert.equal(end.state, "failed");
      assert.match(end.message ?? "", /exit code 7/);
      assert.deepEqual(await sandboxesOf(stack, job), [{ step: "phase-1", outcome: "exited" }]);
      assert.deepEqual(await left(), []);
    });

    test("E5 E8: a job that is cancelled while it runs is proven stopped, and ends", async (t) => {
      const { stack, controller, left } = await open(t);
      const { foundation } = await controller();
      const job = await stack.submit(
        foundation,
        shellJob("cancelled", [{ run: "echo begun; exec sleep 1000" }]),
      );
      await untilRunning(stack, foundation, job);
      await transition(foundation.db, { role: "gateway", tenant: stack.tenant, name: "cancel" }, (tx) =>
        cancelJob(tx, { job, reason: "not needed" }),
      );
      assert.equal((await endOf(stack, job)).state, "cancelled");
      assert.deepEqual(await sandboxesOf(stack, job), [{ step: "phase-1", outcome: "stopped" }]);
      assert.deepEqual(await left(), []);
    });

    test("E5 E16: a controller that goes hands its pod over, which runs once", async (t) => {
      const { stack, controller, left } = await open(t);
      const first = await controller();
      const script = "echo begun; sleep 4; echo ended";
      const job = await stack.submit(first.foundation, shellJob("handed-over", [{ run: script }]));
      await untilRunning(stack, first.foundation, job);
      await first.running.close();
      const { foundation } = await controller();
      assert.equal((await endOf(stack, job)).state, "succeeded");
      const { client } = await stack.gateway(foundation);
      const lines: string[] = [];
      for await (const { text } of client.logs(job)) lines.push(text);
      assert.deepEqual(lines, ["begun", "ended"]);
      assert.deepEqual(await left(), []);
    });
  });
}

interface End {
  readonly state: string;
  readonly code: string | null;
  readonly message: string | null;
}

/** Finished, and everything of it cleaned. */
function endOf(stack: Stack, job: JobId): Promise<End> {
  return until(
    `the end of ${job}`,
    async () => {
      const [row] = await stack.rows<End & { done: boolean }>(
        `select j.state, j.failure_code as code, j.failure_message as message,
           j.finished_at is not null and not exists (
             select from holdfast.execution_attempts a where a.job_id = j.job_id and a.state <> 'cleaned') as done
         from holdfast.jobs j where j.job_id = $1`,
        [job],
      );
      if (row === undefined || !row.done) return null;
      const { done: _, ...end } = row;
      return end;
    },
    endMs,
  );
}

const sandboxesOf = (stack: Stack, job: JobId) =>
  stack.rows<{ step: string; outcome: string }>(
    `select s.step, s.outcome from holdfast.sandbox_attempts s join holdfast.execution_attempts a on a.attempt_id = s.owner_id
     where a.job_id = $1 order by s.planned_at`,
    [job],
  );

/** Its first line has been read. */
async function untilRunning(stack: Stack, foundation: Foundation, job: JobId): Promise<void> {
  const { client } = await stack.gateway(foundation);
  await until(
    "it has begun",
    async () => {
      for await (const { text } of client.logs(job)) if (text === "begun") return true;
      return false;
    },
    endMs,
  );
}
