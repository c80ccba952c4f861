import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pino } from "pino";
import { type Client, createClient } from "../../src/client/client.ts";
import type { JobId } from "../../src/core/ids.ts";
import { createPrincipal, createToken } from "../../src/core/tenant.store.ts";
import { seconds } from "../../src/core/time.ts";
import { openGateway } from "../../src/main/gateway.ts";
import type { SandboxView } from "../../src/wire/job.ts";
import type { ArenaScope } from "./arena.ts";
import { type ControllerHost, openControllerHost } from "./controller-host.ts";
import type { PodObject } from "./kubernetes/pod-object.ts";
import { type MarkedPhase, markedJob } from "./marked-job.ts";
import { memoryBlobs } from "./memory-blobs.ts";
import { openPodArena, type PodArena } from "./pod-arena.ts";
import { untilCleaned } from "./settled.ts";
import { until } from "./until.ts";

/** One controller of pods in this process, a client of the public API, and a world to be broken. */
export interface PodLab {
  readonly arena: PodArena;
  readonly controller: ControllerHost;
  readonly client: Client;
  /** Whoever has the right to take the place of a proof. */
  readonly operator: Client;
  readonly submit: (name: string, phases: readonly MarkedPhase[], spec?: MarkedSpec) => Promise<JobId>;
  /** Waits for the end of everything; how each attempt ended, and what is said about it. */
  readonly ended: (job: JobId) => Promise<Ended>;
  readonly sandbox: (job: JobId) => Promise<SandboxView | undefined>;
  readonly pod: (job: JobId) => PodObject;
  /** Its pod, once its command runs. */
  readonly running: (job: JobId) => Promise<PodObject>;
  /** Shell that waits until `open` is called with the same name. */
  readonly gate: (name: string) => { readonly wait: string; readonly open: () => Promise<void> };
  readonly slotsTaken: () => Promise<number>;
  /** After a test that failed too: nothing of it holds up the next one. */
  readonly endAll: () => Promise<void>;
  /** The world as it was at first. */
  readonly mend: () => void;
}

export type MarkedSpec = Parameters<typeof markedJob>[3];

export interface Ended {
  readonly state: string;
  readonly attempts: readonly (readonly [outcome: string, code: string | null])[];
  readonly message: string;
}

export async function openPodLab(scope: ArenaScope): Promise<PodLab> {
  const arena = await openPodArena(scope, { leaseMs: 30_000 });
  const { cluster } = arena;
  const controller = await openControllerHost(arena.shared);
  scope.after(() => controller.close());
  arena.relay.point(controller.port);
  const gateway = await openGateway(arena.foundation, {
    host: "127.0.0.1",
    port: 0,
    release: "test",
    blobs: memoryBlobs(),
    queueMax: 1000,
    log: pino({ level: "silent" }),
    operator: true,
  });
  scope.after(() => gateway.close());
  const clientWith = async (scopes: Parameters<typeof createToken>[1]["scopes"]) => {
    const { tenant } = arena;
    const { db } = arena.foundation;
    const principal = await createPrincipal(db, {
      tenant,
      name: `client-${scopes.join("-").replaceAll(":", "-")}`,
    });
    const { token } = await createToken(db, { tenant, principal, scopes, lifetime: seconds(3600) });
    return createClient({ url: gateway.address, token });
  };
  const client = await clientWith(["jobs:read"]);

  const lastSandbox: PodLab["sandbox"] = async (job) =>
    (await client.listAttempts(job)).at(-1)?.sandboxes.at(-1);
  const podOf = async (job: JobId) => {
    const name = (await lastSandbox(job))?.name;
    return arena.pods().find(({ metadata }) => metadata.name === name);
  };

  return {
    arena,
    controller,
    client,
    operator: await clientWith(["jobs:read", "operator"]),
    submit: (name, phases, spec) => arena.submit(markedJob(arena, name, phases, spec)),
    async ended(job) {
      await untilCleaned(arena, [job], 60_000);
      const { state } = await client.getJob(job);
      const attempts = await client.listAttempts(job);
      return {
        state,
        attempts: attempts.map(({ outcome, failure }) => [outcome ?? "", failure?.code ?? null] as const),
        message: attempts.find(({ failure }) => failure !== null)?.failure?.message ?? "",
      };
    },
    sandbox: lastSandbox,
    pod(job) {
      const found = arena.pods().find(({ spec }) => JSON.stringify(spec).includes(job));
      assert.ok(found !== undefined, "it has no pod");
      return found;
    },
    async running(job) {
      await until("its command runs", async () => (await arena.marks(job)).length > 0);
      return until("it is seen to run", async () => {
        const pod = await podOf(job);
        return pod?.status.phase === "Running" ? pod : null;
      });
    },
    gate(name) {
      const file = join(arena.shared.directory, `gate-${name}`);
      return {
        wait: `while [ ! -e '${file}' ]; do sleep 0.05; done`,
        async open() {
          await writeFile(file, "");
        },
      };
    },
    async slotsTaken() {
      const rows = await arena.rows("select from holdfast.slots where attempt_id is not null");
      return rows.length;
    },
    mend() {
      cluster.heal();
      cluster.watches.copies = 1;
      cluster.watches.delayMs = 0;
      cluster.lists.stale = null;
      cluster.store.quota = null;
      cluster.clockAheadMs = 0;
      cluster.kubelet.schedules = true;
      cluster.kubelet.startsContainers = true;
      cluster.kubelet.missingImages.clear();
      cluster.kubelet.connect();
      cluster.kubelet.syncAll();
    },
    async endAll() {
      const open = await arena.rows<{ job_id: JobId }>(
        "select job_id from holdfast.jobs where finished_at is null",
      );
      for (const { job_id } of open) await arena.cancel(job_id);
      await untilCleaned(
        arena,
        open.map(({ job_id }) => job_id),
        60_000,
      );
    },
  };
}
