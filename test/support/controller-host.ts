import { join } from "node:path";
import { pino } from "pino";
import { directoryBlobs } from "../../src/blobs/directory/directory-blobs.ts";
import type { ConnectionSettings } from "../../src/core/postgres/pool.ts";
import type { Runtime } from "../../src/core/runtime.port.ts";
import { seconds } from "../../src/core/time.ts";
import { controllerKinds, openController } from "../../src/main/controller.ts";
import { type Foundation, openFoundation } from "../../src/main/process.ts";
import { kubernetesRuntime } from "../../src/runtimes/kubernetes/kubernetes-runtime.ts";
import { openSandboxRuntime } from "../../src/runtimes/opensandbox/opensandbox-runtime.ts";
import { processRuntime } from "../../src/runtimes/process/process-runtime.ts";
import { type Moments, observedBlobs, observedDatabase, observedEgress, observedRuntime } from "./moments.ts";
import { hastyTries, loopbackEgress } from "./publisher.ts";

/** What controllers on one store have in common, in this process and in others. Goes through JSON. */
export interface SharedStore {
  readonly settings: ConnectionSettings;
  readonly installation: string;
  readonly directory: string;
  readonly leaseMs: number;
  /** Base64. */
  readonly callbackKey: string;
  readonly blobKey: string;
  /** Where sandboxes find whichever controller listens now, as a service stands before replicas. */
  readonly origin: string;
  readonly place: Place;
}

/** What executions run as: processes of this host, or pods of whoever answers there. */
export type Place =
  | { readonly kind: "process" }
  | {
      readonly kind: "kubernetes";
      readonly server: string;
      readonly namespace: string;
      readonly token: string;
    }
  | { readonly kind: "opensandbox"; readonly url: string };

export interface ControllerHost {
  readonly foundation: Foundation;
  readonly port: number;
  close(): Promise<void>;
}

export function runtimeOf({ directory, installation, place }: SharedStore): Runtime {
  if (place.kind === "process") {
    return processRuntime({
      directory: join(directory, "sandboxes"),
      installation,
      secretsDirectory: join(directory, "secrets"),
    });
  }
  if (place.kind === "opensandbox") {
    return openSandboxRuntime({
      connection: { url: place.url, apiKey: null, useServerProxy: true },
      installation,
      secretsDirectory: join(directory, "secrets"),
      sandboxes: { image: "registry.test/shell:1" },
    });
  }
  const { server, namespace, token } = place;
  const credentials = () => Promise.resolve({ authorization: `Bearer ${token}` });
  const pods = { image: "registry.test/shell:1" };
  return kubernetesRuntime({ connection: { server, credentials }, namespace, installation, pods });
}

export const openTestFoundation = (shared: SharedStore, process: string): Promise<Foundation> =>
  openFoundation({
    settings: shared.settings,
    process,
    release: "test",
    installation: shared.installation,
    kinds: controllerKinds,
    log: pino({ level: "silent" }),
    leaseUs: seconds(shared.leaseMs / 1000),
    lookMs: 250,
  });

/** A controller as its composition root opens it, on a foundation of its own; observed when `moments` are given. */
export async function openControllerHost(
  shared: SharedStore,
  { moments, logTo }: { readonly moments?: Moments; readonly logTo?: (line: string) => void } = {},
): Promise<ControllerHost> {
  const foundation = await openTestFoundation(shared, "controller");
  const blobs = directoryBlobs({
    directory: join(shared.directory, "blobs"),
    publicUrl: () => shared.origin,
    keys: [Buffer.from(shared.blobKey, "base64")],
  });
  const runtime = runtimeOf(shared);
  const log = pino({ level: "warn" }, { write: (line: string) => logTo?.(line) });
  const running = await openController(
    moments === undefined ? foundation : { ...foundation, db: observedDatabase(foundation.db, moments) },
    {
      installation: shared.installation,
      runtime: moments === undefined ? runtime : observedRuntime(runtime, moments),
      blobs: moments === undefined ? blobs : observedBlobs(blobs, moments),
      beside: blobs.handle,
      callback: {
        host: "127.0.0.1",
        port: 0,
        url: shared.origin,
        keys: [{ id: "k1", key: Buffer.from(shared.callbackKey, "base64") }],
      },
      retention: seconds(3600),
      queueMax: 1000,
      logBytesMax: 1_048_576n,
      logRetention: seconds(3600),
      attemptsMax: 100,
      runsMax: 32,
      sessionsMax: 100,
      deliveries: {
        egress: observedEgress(loopbackEgress(), moments),
        keys: () => Promise.resolve([]),
        settling: { policy: hastyTries },
      },
      log,
    },
  );
  return {
    foundation,
    port: running.callbackPort,
    async close() {
      await running.close();
      await foundation.close();
    },
  };
}
