import { Pool } from "pg";
import { brandId, type TenantId } from "../../src/core/ids.ts";
import type { Work } from "../../src/work/handle.ts";
import { openWork } from "../../src/work/open.ts";
import { type OpenedWork, openedWork } from "../../src/work/opened.ts";
import { createWorker, type Worker, type WorkerOptions } from "../../src/work/worker.ts";
import { type Scope, type TestDatabase, testDatabase } from "./database.ts";

/** A store with a tenant, a program's handle to it, and a superuser's look at it. */
export interface WorkStand {
  readonly database: TestDatabase;
  readonly tenant: TenantId;
  readonly work: OpenedWork;
  readonly errors: string[];
  readonly open: (name?: string) => Promise<OpenedWork>;
  /** Stopped when the test ends. */
  readonly worker: (options: WorkerOptions, work?: Work) => Promise<Worker>;
  readonly ask: <Row extends object>(text: string, values?: readonly unknown[]) => Promise<Row[]>;
}

export async function workStand(
  scope: Scope & { readonly after: (hook: () => Promise<void>) => void },
): Promise<WorkStand> {
  const database = await testDatabase(scope);
  const closers: (() => Promise<unknown>)[] = [];
  scope.after(async () => {
    for (const closer of closers.splice(0).toReversed()) await closer();
  });
  const superuser = new Pool({ ...database.superuser, max: 4 });
  superuser.on("error", () => undefined);
  closers.push(() => superuser.end());
  const ask = async <Row extends object>(text: string, values: readonly unknown[] = []) =>
    (await superuser.query<Row>(text, [...values])).rows;
  const tenant = brandId<TenantId>("acme");
  await ask("insert into holdfast.tenants (tenant_id) values ('acme'), ('other')");
  const errors: string[] = [];
  const open = async (name = "test") => {
    const opened = await openWork({
      database: database.app,
      tenant,
      name,
      onError: (error, what) =>
        errors.push(`${what}: ${error instanceof Error ? error.message : String(error)}`),
    });
    closers.push(() => opened.close());
    return openedWork(opened);
  };
  const work = await open();
  return {
    database,
    tenant,
    work,
    errors,
    open,
    ask,
    async worker(options, on = work) {
      const worker = await createWorker(on, options);
      closers.push(() => worker.stop());
      return worker;
    },
  };
}
