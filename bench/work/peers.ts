import { Pool } from "pg";
import type { Engine, OpenEngine } from "./engine.ts";
import { load } from "./load.ts";

interface GraphileUtils {
  migrate(): Promise<void>;
  addJob(task: string, payload: unknown): Promise<unknown>;
  addJobs(jobs: readonly { identifier: string; payload: unknown }[]): Promise<unknown>;
  release(): Promise<void>;
}

/** graphile-worker with its local queue and batched completion: unfenced, without history. */
export const graphileWorker: OpenEngine = async (_, url) => {
  const graphile = (await load("graphile-worker")) as {
    makeWorkerUtils(options: object): Promise<GraphileUtils>;
    run(options: object): Promise<{ stop(): Promise<void> }>;
    Logger: new (factory: () => () => void) => object;
  };
  const pool = new Pool({ connectionString: url, max: 20 });
  for (const event of ["error", "connect"] as const) pool.on(event, () => undefined);
  const logger = new graphile.Logger(() => () => undefined);
  const utils = await graphile.makeWorkerUtils({ pgPool: pool, logger });
  await utils.migrate();
  return {
    name: "graphile-worker",
    async submitAll(count) {
      for (let from = 0; from < count; from += 5_000) {
        const length = Math.min(5_000, count - from);
        await utils.addJobs(Array.from({ length }, (_unused, n) => ({ identifier: "noop", payload: { n } })));
      }
    },
    submit: async () => void (await utils.addJob("noop", { n: 0 })),
    async run(concurrency, counter) {
      const taskList = {
        noop: () => {
          counter.enter();
          counter.leave();
        },
      };
      const worker = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
      const runner = await graphile.run({
        pgPool: pool,
        logger,
        concurrency,
        noHandleSignals: true,
        noPreparedStatements: false,
        taskList,
        preset: { worker },
      });
      return () => runner.stop();
    },
    waiting: "select count(*)::int as n from graphile_worker._private_jobs",
    async close() {
      await utils.release();
      await pool.end();
    },
  };
};

interface Boss {
  on(event: string, listener: () => void): void;
  start(): Promise<unknown>;
  createQueue(name: string): Promise<void>;
  send(name: string, data: object): Promise<unknown>;
  insert(name: string, jobs: readonly object[]): Promise<unknown>;
  fetch(name: string, options: object): Promise<{ id: string }[]>;
  complete(name: string, ids: readonly string[]): Promise<unknown>;
  stop(options: object): Promise<void>;
}

/** pg-boss by batches of 500: fetched in one statement and completed in another. */
export const pgBoss: OpenEngine = async (_, url) => {
  const { PgBoss } = (await load("pg-boss")) as { PgBoss: new (options: object) => Boss };
  const boss = new PgBoss({ connectionString: url, max: 20, schedule: false, supervise: false });
  boss.on("error", () => undefined);
  await boss.start();
  await boss.createQueue("noop");
  return {
    name: "pg-boss",
    async submitAll(count) {
      for (let from = 0; from < count; from += 5_000) {
        const length = Math.min(5_000, count - from);
        await boss.insert(
          "noop",
          Array.from({ length }, (_unused, n) => ({ data: { n } })),
        );
      }
    },
    submit: async () => void (await boss.send("noop", { n: 0 })),
    run: (_concurrency, counter) =>
      Promise.resolve(
        looping(async () => {
          const jobs = await boss.fetch("noop", { batchSize: 500 });
          for (const _job of jobs) {
            counter.enter();
            counter.leave();
          }
          if (jobs.length > 0)
            await boss.complete(
              "noop",
              jobs.map(({ id }) => id),
            );
          return jobs.length > 0;
        }),
      ),
    waiting: "select count(*)::int as n from pgboss.job where name = 'noop' and state < 'completed'",
    close: () => boss.stop({ graceful: false }),
  };
};

interface BullQueue {
  add(name: string, data: object): Promise<unknown>;
  addBulk(jobs: readonly object[]): Promise<unknown>;
  waitUntilReady(): Promise<unknown>;
  on(event: string, listener: () => void): unknown;
  close(): Promise<void>;
}

/** BullMQ on its PostgreSQL backend. */
export const bullmq: OpenEngine = async (_, url) => {
  const bull = (await load("bullmq")) as {
    createPostgresBackend: unknown;
    Queue: new (name: string, options: object, backend: unknown) => BullQueue;
    Worker: new (name: string, run: () => Promise<void>, options: object, backend: unknown) => BullQueue;
  };
  const connection = { connectionString: url, max: 20, migrate: true };
  const queue = new bull.Queue("noop", { connection }, bull.createPostgresBackend);
  queue.on("error", () => undefined);
  await queue.waitUntilReady();
  const options = { removeOnComplete: true };
  return {
    name: "BullMQ on PostgreSQL",
    share: 0.1,
    async submitAll(count) {
      for (let from = 0; from < count; from += 1_000) {
        const length = Math.min(1_000, count - from);
        await queue.addBulk(
          Array.from({ length }, (_unused, n) => ({ name: "noop", data: { n }, opts: options })),
        );
      }
    },
    submit: async () => void (await queue.add("noop", { n: 0 })),
    async run(concurrency, counter) {
      const work = async () => {
        counter.enter();
        await Promise.resolve();
        counter.leave();
      };
      const worker = new bull.Worker("noop", work, { connection, concurrency }, bull.createPostgresBackend);
      worker.on("error", () => undefined);
      await worker.waitUntilReady();
      return () => worker.close();
    },
    waiting: null,
    close: () => queue.close(),
  };
};

/** The limit: a batch is claimed by deleting it. What a crash has in hand is lost. */
export const bareLoop: OpenEngine = async (_, url) => {
  const pool = new Pool({ connectionString: url, max: 20 });
  for (const event of ["error", "connect"] as const) pool.on(event, () => undefined);
  await pool.query(
    "create table if not exists bare (id bigint generated always as identity primary key, input jsonb not null)",
  );
  const engine: Engine = {
    name: "bare loop",
    async submitAll(count) {
      await pool.query(
        "insert into bare (input) select jsonb_build_object('n', n) from generate_series(1, $1::int) n",
        [count],
      );
    },
    submit: async () =>
      void (await pool.query({
        name: "one",
        text: "insert into bare (input) values ($1)",
        values: ['{"n": 0}'],
      })),
    run: (_concurrency, counter) =>
      Promise.resolve(
        looping(async () => {
          const { rowCount } = await pool.query({
            name: "take",
            text: "delete from bare where id = any (array(select id from bare order by id limit 500 for update skip locked)) returning input",
          });
          for (let n = 0; n < (rowCount ?? 0); n += 1) {
            counter.enter();
            counter.leave();
          }
          return (rowCount ?? 0) > 0;
        }),
      ),
    waiting: "select count(*)::int as n from bare",
    close: () => pool.end(),
  };
  return engine;
};

/** Runs the turn until it is ended, with a pause of 5 ms when there was nothing. */
function looping(turn: () => Promise<boolean>): () => Promise<void> {
  let ended = false;
  const loop = (async () => {
    while (!ended) if (!(await turn())) await new Promise((resolve) => setTimeout(resolve, 5));
  })();
  return async () => {
    ended = true;
    await loop;
  };
}
