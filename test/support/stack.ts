import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { directoryBlobs } from "../../src/blobs/directory/directory-blobs.ts";
import { type Client, createClient } from "../../src/client/client.ts";
import type { BlobStore } from "../../src/core/blob.port.ts";
import { brandId, type JobId, type TenantId } from "../../src/core/ids.ts";
import type { ConnectionSettings } from "../../src/core/postgres/settings.ts";
import { transition } from "../../src/core/postgres/transition.ts";
import type { Runtime } from "../../src/core/runtime.port.ts";
import { createPrincipal, createTenant, createToken } from "../../src/core/tenant.store.ts";
import type { GrantedScope } from "../../src/core/tenant.ts";
import { seconds } from "../../src/core/time.ts";
import { submitJob } from "../../src/executions/job.store.ts";
import type { RunningGateway } from "../../src/http/server.ts";
import {
  controllerKinds,
  type DeliveryRole,
  openController,
  type RunningController,
} from "../../src/main/controller.ts";
import { openGateway } from "../../src/main/gateway.ts";
import { type Foundation, openFoundation } from "../../src/main/process.ts";
import { processRuntime } from "../../src/runtimes/process/process-runtime.ts";
import type { JobSubmission, PhaseSpec } from "../../src/wire/job.ts";
import type { WorkRetention } from "../../src/work/retention.ts";
import { type TestDatabase, testDatabase, withClient } from "./database.ts";
import { assertInvariants } from "./invariants.ts";

/** A store with everything that a controller needs around it, in folders that go with the test. */
export interface Stack {
  readonly database: TestDatabase;
  readonly installation: string;
  readonly directory: string;
  readonly tenant: TenantId;
  readonly foundation: (process: string, options?: FoundationChoices) => Promise<Foundation>;
  readonly runtime: () => Runtime;
  /** What controllers and gateways store to and read from. */
  readonly blobs: BlobStore;
  readonly controller: (foundation: Foundation, options?: ControllerChoices) => Promise<RunningController>;
  /** The public API over the same store and blobs, and a client of it. */
  readonly gateway: (
    foundation: Foundation,
    options?: { readonly operator?: boolean; readonly scopes?: readonly GrantedScope[] },
  ) => Promise<{ readonly gateway: RunningGateway; readonly token: string; readonly client: Client }>;
  readonly submit: (foundation: Foundation, job: JobSubmission, tenant?: TenantId) => Promise<JobId>;
  /** Rows as the superuser sees them, for looking at what the record says. */
  readonly rows: <Row>(text: string, values?: unknown[]) => Promise<Row[]>;
}

export interface FoundationChoices {
  readonly leaseMs?: number;
  /** Another way to the same database. */
  readonly settings?: ConnectionSettings;
}

export interface ControllerChoices {
  /** What is kept of Work for a time only. */
  readonly work?: WorkRetention;
  readonly runtime?: Runtime;
  readonly retentionSeconds?: number;
  readonly logRetentionSeconds?: number;
  readonly logBytesMax?: bigint;
  readonly queueMax?: number;
  readonly deliveries?: DeliveryRole;
}

export interface StackScope {
  readonly after: (hook: () => void | Promise<void>) => void;
}

export async function testStack(
  outer: StackScope,
  tenantName = "acme",
  /** False for a test that breaks on purpose what is always true. */
  {
    invariants = true,
    database: own,
  }: { readonly invariants?: boolean; readonly database?: TestDatabase } = {},
): Promise<Stack> {
  // Hooks run in the order in which they were added; what was opened last has to be closed first.
  const closers: (() => void | Promise<void>)[] = [];
  const scope: StackScope = { after: (hook) => void closers.push(hook) };
  outer.after(async () => {
    for (const closer of closers.splice(0).toReversed()) await closer();
  });
  const database = own ?? (await testDatabase(scope));
  if (invariants) scope.after(() => assertInvariants(database));
  const directory = await mkdtemp(join(tmpdir(), "hf-stack-"));
  scope.after(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  const rows = <Row>(text: string, values: unknown[] = []) =>
    withClient(database.superuser, async (client) => (await client.query(text, values)).rows as Row[]);
  const [store] = await rows<{ installation_id: string }>("select installation_id from holdfast.store");
  if (store === undefined) throw new Error("the store has no row");
  const installation = store.installation_id;
  const log = pino({ level: "silent" });
  const keys = [{ id: "k1", key: randomBytes(32) }];
  const blobKeys = [randomBytes(32)];
  const blobsAt = (port: () => number) =>
    directoryBlobs({
      directory: join(directory, "blobs"),
      publicUrl: () => `http://127.0.0.1:${port()}`,
      keys: blobKeys,
    });

  const blobs = blobsAt(() => 0);

  const foundation: Stack["foundation"] = async (
    process,
    { leaseMs = 30_000, settings = database.app } = {},
  ) => {
    const opened = await openFoundation({
      settings,
      process,
      release: "test",
      installation,
      kinds: controllerKinds,
      log,
      leaseUs: seconds(leaseMs / 1000),
      lookMs: 250,
    });
    scope.after(() => opened.close());
    return opened;
  };
  const first = await foundation("setup");
  const tenant = await createTenant(first.db, tenantName);

  const runtime = () =>
    processRuntime({
      directory: join(directory, "sandboxes"),
      installation,
      secretsDirectory: join(directory, "secrets"),
    });

  return {
    database,
    installation,
    directory,
    tenant,
    foundation,
    runtime,
    blobs,
    rows,
    async gateway(foundation, { operator = false, scopes = ["jobs:read"] as const } = {}) {
      const { db } = foundation;
      const gateway = await openGateway(foundation, {
        host: "127.0.0.1",
        port: 0,
        release: "test",
        blobs,
        queueMax: 1000,
        log,
        operator,
      });
      scope.after(() => gateway.close());
      const principal = await createPrincipal(db, {
        tenant,
        name: `client-${randomBytes(4).toString("hex")}`,
      });
      const { token } = await createToken(db, {
        tenant,
        principal,
        scopes,
        lifetime: seconds(3600),
      });
      return { gateway, token, client: createClient({ url: gateway.address, token }) };
    },
    async controller(foundation, options = {}) {
      let port = 0;
      const blobs = blobsAt(() => port);
      const running = await openController(foundation, {
        installation,
        runtime: options.runtime ?? runtime(),
        blobs,
        beside: blobs.handle,
        callback: { host: "127.0.0.1", port: 0, url: null, keys },
        retention: seconds(options.retentionSeconds ?? 3600),
        queueMax: options.queueMax ?? 1000,
        logBytesMax: options.logBytesMax ?? 1_048_576n,
        logRetention: seconds(options.logRetentionSeconds ?? 3600),
        attemptsMax: 100,
        runsMax: 32,
        sessionsMax: 100,
        ...(options.deliveries === undefined ? {} : { deliveries: options.deliveries }),
        ...(options.work === undefined ? {} : { work: options.work }),
        log,
      });
      port = running.callbackPort;
      scope.after(() => running.close());
      return running;
    },
    async submit(foundation, submission, owner = tenant) {
      const row = await transition(foundation.db, { role: "gateway", tenant: owner, name: "submit" }, (tx) =>
        submitJob(tx, { submission, queueMax: 1000 }),
      );
      return brandId<JobId>(row.job_id);
    },
  };
}

/** A job of phases that run short shell commands. */
export function shellJob(
  name: string,
  phases: readonly { readonly kind?: PhaseSpec["kind"]; readonly run: string; readonly grace?: string }[],
  spec: Partial<Omit<JobSubmission["spec"], "phases">> = {},
): JobSubmission {
  return {
    apiVersion: "holdfast/v1",
    kind: "Job",
    metadata: { name },
    spec: {
      deadline: "2m",
      ...spec,
      phases: phases.map(({ kind = "compile", run, grace = "1s" }, index) => ({
        name: `phase-${index + 1}`,
        kind,
        command: ["sh", "-c", run],
        grace,
      })),
    },
  };
}
