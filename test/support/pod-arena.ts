import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { type Arena, type ArenaScope, openArena, type World } from "./arena.ts";
import { Cluster } from "./kubernetes/cluster.ts";
import type { HeldRequest } from "./kubernetes/held-requests.ts";
import type { PodObject } from "./kubernetes/pod-object.ts";
import { until } from "./until.ts";

/** An arena whose sandboxes are pods of a double of the Kubernetes API server, in this process. */
export interface PodArena extends Arena {
  readonly cluster: Cluster;
  readonly pods: () => readonly PodObject[];
}

export const namespace = "sandboxes";

export async function openPodArena(
  scope: ArenaScope,
  { leaseMs = 2_000 }: { readonly leaseMs?: number } = {},
): Promise<PodArena> {
  const cluster = await Cluster.start();
  const token = randomBytes(24).toString("hex");
  cluster.token = token;
  scope.after(() => cluster.close());
  const pods = () => cluster.store.all(namespace);
  const world: World = {
    place: { kind: "kubernetes", server: cluster.connection().server, namespace, token },
    async assertNoneRun() {
      await until("no container is left", () => cluster.kubelet.running === 0);
      assert.deepEqual(pods(), [], "pods");
    },
    hold: (moment, nth, tenant) => holdAt(cluster, moment, nth, tenant),
  };
  return { ...(await openArena(scope, { leaseMs, world })), cluster, pods };
}

/** `api VERB received` or `api VERB done`, of what belongs to this tenant; empty: of anything. */
function holdAt(cluster: Cluster, moment: string, nth: number, tenant: string): HeldRequest {
  const [, verb, at] = /^api (\w+) (received|done)$/.exec(moment) ?? [];
  assert.ok(at === "received" || at === "done", moment);
  return cluster.held.hold(
    at,
    nth,
    (request) => request.verb === verb && (tenant === "" || request.tenant === tenant),
  );
}
