import { Pool } from "pg";
import type { Counter, OpenEngine } from "./engine.ts";
import { load } from "./load.ts";

type Workflow = (n: number) => Promise<void>;

interface Dbos {
  setConfig(config: object): void;
  registerWorkflow(run: Workflow, config: { readonly name: string }): Workflow;
  launch(): Promise<void>;
  shutdown(): Promise<void>;
  registerQueue(name: string, options: object): Promise<unknown>;
  startWorkflow(workflow: Workflow, options: { readonly queueName: string }): (n: number) => Promise<unknown>;
}

interface Receiver {
  prepareEnqueuedWorkflow(workflow: Workflow, args: readonly [number], options: object): Promise<object>;
  enqueueWorkflows(workflows: readonly object[]): Promise<unknown>;
}

const queue = "noop";
const silent = {
  info: () => undefined,
  debug: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

let counter: Counter | undefined;
/** A process registers it once, however often it is opened. */
let noop: Workflow | undefined;

/**
 * DBOS: a workflow without steps on a queue that runs `concurrency` of them in a process and is looked at again 1 ms
 * after each look, instead of once a second. Many are enqueued in one transaction, as its event receivers do.
 * It is one for each process: whoever only submits, listens to no queue.
 */
export const dbos: OpenEngine = async (_, url) => {
  const { DBOS } = (await load("@dbos-inc/dbos-sdk")) as { DBOS: Dbos };
  const receiver = (await load("@dbos-inc/dbos-sdk/eventreceiver")) as Receiver;
  const pool = new Pool({ connectionString: url, max: 20 });
  for (const event of ["error", "connect"] as const) pool.on(event, () => undefined);
  const workflow = (noop ??= DBOS.registerWorkflow(
    () => {
      counter?.enter();
      counter?.leave();
      return Promise.resolve();
    },
    { name: "noop" },
  ));
  const launch = async (listenQueues: readonly string[]) => {
    DBOS.setConfig({
      name: "bench",
      // It wants a host in front of the database's name, also where the socket's folder follows.
      systemDatabaseUrl: url.replace("@/", "@localhost/"),
      systemDatabasePool: pool,
      applicationVersion: "1",
      executorID: `bench-${process.pid}`,
      logger: silent,
      listenQueues,
    });
    await DBOS.launch();
  };
  await launch([]);
  return {
    name: "DBOS",
    share: 0.1,
    async submitAll(count) {
      for (let from = 0; from < count; from += 1_000) {
        const length = Math.min(1_000, count - from);
        const prepared = Array.from({ length }, (_unused, n) =>
          receiver.prepareEnqueuedWorkflow(workflow, [n], {
            queueName: queue,
            workflowID: crypto.randomUUID(),
          }),
        );
        await receiver.enqueueWorkflows(await Promise.all(prepared));
      }
    },
    submit: async () => void (await DBOS.startWorkflow(workflow, { queueName: queue })(0)),
    async run(concurrency, count) {
      counter = count;
      await DBOS.shutdown();
      await launch([queue]);
      await DBOS.registerQueue(queue, {
        workerConcurrency: concurrency,
        minPollingIntervalMs: 1,
        onConflict: "always_update",
      });
      return async () => {
        await DBOS.shutdown();
        await launch([]);
      };
    },
    waiting: "select count(*)::int as n from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')",
    async close() {
      await DBOS.shutdown();
      await pool.end();
    },
  };
};
