import { rmSync } from "node:fs";
import type { Logger } from "pino";
import { directoryBlobs } from "../blobs/directory/directory-blobs.ts";
import { type Config, required } from "../config.ts";
import { parseNetwork } from "../core/egress/address.ts";
import { openEgress } from "../core/egress/egress.ts";
import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import { brandId, type IncarnationId, type TenantId } from "../core/ids.ts";
import { expireLeasesOf } from "../core/lease.store.ts";
import {
  createPrincipal,
  createTenant,
  createToken,
  findPrincipal,
  isTokenGood,
} from "../core/tenant.store.ts";
import { type Microseconds, seconds } from "../core/time.ts";
import { signingKeysIn } from "../deliveries/signing-keys.ts";
import { assertPortFree } from "../http/listener.ts";
import { controllerKinds, openController } from "../main/controller.ts";
import { openGateway } from "../main/gateway.ts";
import { type Metrics, openMetrics } from "../main/metrics.ts";
import { type Foundation, openFoundation } from "../main/process.ts";
import { openRuntime, type RuntimeKind } from "../main/runtimes.ts";
import { processIdentity } from "./directory-lock.mjs";
import { type Home, openHome, write } from "./home.ts";
import { startPostgres } from "./postgres/server.ts";
import { prepareStore } from "./store.ts";

export interface DevOptions {
  /** The folder with everything of this store, `.holdfast`. */
  readonly directory: string;
  readonly host: string;
  readonly port: number;
  readonly release: string;
  readonly retention: Microseconds;
  readonly queueMax: number;
  readonly logBytesMax: bigint;
  readonly logRetention: Microseconds;
  /** Where phases run; what the process runtime needs is in the folder. */
  readonly runtime: { readonly kind: RuntimeKind; readonly config: Config };
  readonly log: Logger;
  /** One line for each thing that is being done, for a person who waits. */
  readonly announce: (line: string) => void;
}

export interface DevStack {
  readonly url: string;
  readonly token: string;
  readonly home: Home;
  /** Settles when something that everything stands on has ended by itself. */
  readonly broken: Promise<Error>;
  close(): Promise<void>;
}

const tenantName = "default";
const attemptsMax = 50;
const loopback = ["127.0.0.0/8", "::1"].map(parseNetwork);

/** Everything in one process on loopback: PostgreSQL, schema, gateway, controller, process runtime, blobs. */
export async function startDev(options: DevOptions): Promise<DevStack> {
  const { announce, log } = options;
  const home = await openHome(options.directory);
  const closers: (() => Promise<void> | void)[] = [() => home.release()];
  const close = async () => {
    for (const closer of closers.splice(0).toReversed()) await closer();
  };
  const withdraw = () => rmSync(home.path("dev.json"), { force: true });
  try {
    // We hold the folder's lock: whoever left it there is gone.
    withdraw();
    await assertPortFree(options);
    const postgres = await startPostgres({ directory: home.path("postgres"), log: announce });
    closers.push(() => postgres.stop());
    const { installation } = home.state();
    const metrics = openMetrics({ release: options.release, process: "dev" });
    const settings = await prepareStore(postgres.connection, installation, announce);
    const foundation = await openFoundation({
      settings,
      process: "dev",
      release: options.release,
      installation,
      kinds: controllerKinds,
      metrics,
      log,
    });
    closers.push(() => foundation.close());
    await succeed(home, foundation);
    const tenant = await ensureTenant(foundation);
    const token = await ensureToken(home, foundation, tenant);
    const controller = await openDevController(home, foundation, options, metrics);
    closers.push(() => controller.close());
    const gateway = await openGateway(foundation, {
      host: options.host,
      port: options.port,
      release: options.release,
      blobs: controller.blobs,
      queueMax: options.queueMax,
      runtime: options.runtime.kind,
      log,
      operator: true,
    });
    closers.push(() => gateway.close());
    closers.push(withdraw);
    // With who we are, so that what a SIGKILL leaves there is known for what it is.
    const self = { pid: process.pid, identity: processIdentity(process.pid) };
    write(home.path("dev.json"), { url: gateway.address, token, process: self });
    const broken = postgres.ended.then(
      () => new HoldfastError("unavailable", "PostgreSQL has ended by itself"),
    );
    return { url: gateway.address, token, home, broken, close };
  } catch (error) {
    await close();
    throw error;
  }
}

/**
 * We hold the folder's lock, so the process that had it before is dead, and what it still leases need not wait
 * for its time to pass.
 */
async function succeed(home: Home, foundation: Foundation): Promise<void> {
  const { incarnation } = home.state();
  if (incarnation !== null) await expireLeasesOf(foundation.db, brandId<IncarnationId>(incarnation));
  home.save({ incarnation: foundation.holder });
}

async function ensureTenant({ db }: Foundation): Promise<TenantId> {
  try {
    return await createTenant(db, tenantName);
  } catch (error) {
    if (!isHoldfastError(error, "conflict")) throw error;
    return brandId<TenantId>(tenantName);
  }
}

/** The token of this store's own user: one for as long as it is good, so that no others lie about. */
async function ensureToken(home: Home, { db }: Foundation, tenant: TenantId): Promise<string> {
  const { token: kept, tokenId } = home.state();
  const left = seconds(86_400);
  if (kept !== null && tokenId !== null && (await isTokenGood(db, { tenant, token: tokenId, left })))
    return kept;
  const name = "dev";
  const principal =
    (await findPrincipal(db, { tenant, name })) ?? (await createPrincipal(db, { tenant, name }));
  const { token, id } = await createToken(db, {
    tenant,
    principal,
    scopes: ["*", "operator"],
    lifetime: seconds(30 * 86_400),
  });
  home.save({ token, tokenId: id });
  return token;
}

async function openDevController(home: Home, foundation: Foundation, options: DevOptions, metrics: Metrics) {
  const { installation, blobKey } = home.state();
  let origin = "";
  const blobs = directoryBlobs({
    directory: home.path("blobs"),
    publicUrl: () => origin,
    keys: [Buffer.from(blobKey, "base64")],
    onFault: (error) => options.log.error({ err: error }, "a blob could not be served"),
  });
  const { kind, config } = options.runtime;
  const sandboxDirectory = home.path("sandboxes");
  const ofThisFolder = { ...config, sandboxDirectory, secretsDirectory: home.path("secrets") };
  const runtime = await openRuntime(ofThisFolder, { kind, installation, onRequest: metrics.requests(kind) });
  // Only processes of this host reach loopback.
  const place =
    kind === "process"
      ? { host: "127.0.0.1", url: null }
      : { host: config.callbackHost, url: required(config, "callbackUrl") };
  const open = (port: number) =>
    openController(foundation, {
      installation,
      runtime,
      blobs,
      beside: blobs.handle,
      callback: { ...place, port, keys: home.callbackKeys() },
      retention: options.retention,
      queueMax: options.queueMax,
      logBytesMax: options.logBytesMax,
      logRetention: options.logRetention,
      attemptsMax,
      runsMax: config.runsMax,
      sessionsMax: config.sessionsMax,
      // Whoever uses this store is on this machine: what listens here may be told.
      deliveries: {
        egress: openEgress({ allowed: [...loopback, ...(config.egressAllow ?? [])] }),
        keys: signingKeysIn(home.path("signing-keys")),
      },
      metrics,
      log: options.log,
    });
  const running = await open(kind === "process" ? home.state().callbackPort : config.callbackPort).catch(
    (error: unknown) => {
      if (!isHoldfastError(error, "port_taken") || kind !== "process") throw error;
      // What still runs from before can't report there any more; its attempts fail and say why.
      options.log.warn("the callback port of the last run is taken; another one is used");
      return open(0);
    },
  );
  origin = place.url ?? `http://127.0.0.1:${running.callbackPort}`;
  if (kind === "process") home.save({ callbackPort: running.callbackPort });
  return { ...running, blobs };
}
