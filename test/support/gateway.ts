import type { BlobStore } from "../../src/core/blob.port.ts";
import type { PrincipalId, TenantId } from "../../src/core/ids.ts";
import { startLookout } from "../../src/core/lookout.ts";
import { openDoorbell } from "../../src/core/postgres/doorbell.ts";
import { startSequencer } from "../../src/core/sequencer.ts";
import { createPrincipal, createTenant, createToken } from "../../src/core/tenant.store.ts";
import type { GrantedScope } from "../../src/core/tenant.ts";
import { seconds } from "../../src/core/time.ts";
import { startChangeReader } from "../../src/core/watch.ts";
import { type GatewayOptions, type RunningGateway, startGateway } from "../../src/http/server.ts";
import { apiRoutes } from "../../src/main/api.ts";
import type { JobSubmission, JobView } from "../../src/wire/job.ts";
import type { ProblemDocument } from "../../src/wire/problem.ts";
import type { Scope } from "./database.ts";
import { type Kernel, openKernel, tenantA, tenantB } from "./kernel.ts";

export interface Caller {
  readonly tenant: TenantId;
  readonly principal: PrincipalId;
  readonly token: string;
  readonly tokenId: string;
}

/** A whole gateway over real HTTP and a store of its own, with two tenants. */
export interface Bench {
  readonly kernel: Kernel;
  readonly gateway: () => RunningGateway;
  readonly url: (path: string) => string;
  readonly a: Caller;
  readonly b: Caller;
  readonly caller: (tenant: TenantId, scopes: readonly GrantedScope[], lifetime?: number) => Promise<Caller>;
  /** Another process takes over: same store, nothing else in common. */
  readonly restart: () => Promise<void>;
  readonly start: (options?: Partial<GatewayOptions>) => Promise<RunningGateway>;
  readonly call: (
    caller: Caller | null,
    method: string,
    path: string,
    request?: CallRequest,
  ) => Promise<Reply>;
  readonly submit: (caller?: Caller, change?: Partial<JobSubmission["metadata"]>) => Promise<JobView>;
}

export interface CallRequest {
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly key?: string;
  readonly ifMatch?: string;
}

export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The body, read as JSON. */
  readonly json: <T>() => T;
  readonly problem: () => ProblemDocument;
}

export function submission(metadata: Partial<JobSubmission["metadata"]> = {}): JobSubmission {
  return {
    apiVersion: "holdfast/v1",
    kind: "Job",
    metadata: { name: "build", ...metadata },
    spec: { phases: [{ name: "compile", kind: "compile", command: ["true"] }] },
  };
}

export const noBlobs: BlobStore = {
  put: () => Promise.reject(new Error("no blobs here")),
  size: () => Promise.resolve(null),
  verify: () => Promise.resolve(false),
  read: () => Promise.reject(new Error("no blobs here")),
  remove: () => Promise.resolve(),
  // oxlint-disable-next-line no-empty-function -- there are none
  async *list() {},
  grantUpload: () => Promise.reject(new Error("no blobs here")),
  grantDownload: () => Promise.reject(new Error("no blobs here")),
};

export async function openBench(
  scope: Scope & { readonly after: (hook: () => Promise<void>) => void },
  options: Partial<GatewayOptions> & { readonly queueMax?: number; readonly blobs?: BlobStore } = {},
): Promise<Bench> {
  let ring = () => {};
  const kernel = await openKernel(scope, { committed: () => ring() });
  const onError = () => undefined;
  const doorbell = openDoorbell({ settings: kernel.settings, name: "test", onError });
  scope.after(() => doorbell.close());
  ring = () => doorbell.ring();
  const lookout = startLookout({ db: kernel.db, doorbell, kinds: [], onError });
  scope.after(() => lookout.stop());
  const sequencer = startSequencer({ db: kernel.db, lookout, onError });
  scope.after(() => sequencer.stop());
  const reader = await startChangeReader({ db: kernel.db, lookout, onError });
  scope.after(() => reader.stop());
  const { queueMax = 100, blobs = noBlobs, ...rest } = options;
  const start = (more: Partial<GatewayOptions> = {}) =>
    startGateway({
      db: kernel.db,
      reader,
      doorbell,
      routes: apiRoutes({ blobs, queueMax, examine: null }),
      host: "127.0.0.1",
      port: 0,
      release: "0.0.0-test",
      drainMs: 500,
      ...rest,
      ...more,
    });
  let gateway = await start();
  scope.after(() => gateway.close());

  let callers = 0;
  const caller: Bench["caller"] = async (tenant, scopes, lifetime = 3600) => {
    callers += 1;
    const principal = await createPrincipal(kernel.db, { tenant, name: `caller-${callers}` });
    const grant = { tenant, principal, scopes, lifetime: seconds(lifetime) };
    const { id, token } = await createToken(kernel.db, grant);
    return { tenant, principal, token, tokenId: id };
  };
  // Somewhere there is a controller: without one, all that waits would say so.
  await kernel.ask(
    `insert into holdfast.incarnations
       (incarnation_id, process, release, schema_minimum, schema_maximum, deployment_epoch, runtimes, seen_at)
     select gen_random_uuid(), 'controller', 'test', 0, 9000, deployment_epoch, '{process,kubernetes,opensandbox}',
       now() + interval '1 day' from holdfast.store`,
  );
  await createTenant(kernel.db, tenantA);
  await createTenant(kernel.db, tenantB);
  const a = await caller(tenantA, ["*"]);
  const b = await caller(tenantB, ["*"]);

  const url = (path: string) => `${gateway.address}${path}`;
  const call: Bench["call"] = (who, method, path, request = {}) => send(who, method, url(path), request);
  return {
    kernel,
    gateway: () => gateway,
    url,
    a,
    b,
    caller,
    start,
    async restart() {
      await gateway.close();
      gateway = await start();
    },
    call,
    async submit(who = a, change = {}) {
      const reply = await call(who, "POST", "/v1/jobs", { body: submission(change) });
      if (reply.status !== 201) throw new Error(`not submitted: ${reply.text}`);
      return reply.json<JobView>();
    },
  };
}

async function send(who: Caller | null, method: string, url: string, request: CallRequest): Promise<Reply> {
  const response = await fetch(url, {
    method,
    headers: {
      ...(who === null ? {} : { authorization: `Bearer ${who.token}` }),
      ...(request.body === undefined ? {} : { "content-type": "application/json" }),
      ...(request.key === undefined ? {} : { "idempotency-key": request.key }),
      ...(request.ifMatch === undefined ? {} : { "if-match": request.ifMatch }),
      ...request.headers,
    },
    ...(request.body === undefined
      ? {}
      : { body: typeof request.body === "string" ? request.body : JSON.stringify(request.body) }),
    signal: AbortSignal.timeout(20_000),
  });
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    text,
    json: <T>() => JSON.parse(text) as T,
    problem: () => JSON.parse(text) as ProblemDocument,
  };
}
