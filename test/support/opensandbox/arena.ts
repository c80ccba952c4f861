import assert from "node:assert/strict";
import { type Arena, type ArenaScope, openArena, type World } from "../arena.ts";
import type { HeldRequest } from "../kubernetes/held-requests.ts";
import { assertNoProcessOf } from "../no-process.ts";
import { OpenSandboxDouble } from "./service.ts";

/** An arena whose sandboxes are those of a double of an OpenSandbox service, in this process. */
export interface OpenSandboxArena extends Arena {
  readonly service: OpenSandboxDouble;
}

export async function openOpenSandboxArena(
  scope: ArenaScope,
  { leaseMs = 2_000 }: { readonly leaseMs?: number } = {},
): Promise<OpenSandboxArena> {
  const service = await OpenSandboxDouble.start();
  scope.after(() => service.close());
  const world: World = {
    place: { kind: "opensandbox", url: service.url },
    async assertNoneRun(uids) {
      await assertNoProcessOf(uids);
      assert.deepEqual([...service.boxes.keys()], [], "sandboxes");
    },
    hold: (moment, nth, tenant) => holdAt(service, moment, nth, tenant),
  };
  return { ...(await openArena(scope, { leaseMs, world })), service };
}

/** `api VERB received` or `api VERB done`, of what belongs to this tenant; empty: of anything. */
function holdAt(service: OpenSandboxDouble, moment: string, nth: number, tenant: string): HeldRequest {
  const [, verb, at] = /^api (\w+) (received|done)$/.exec(moment) ?? [];
  assert.ok(at === "received" || at === "done", moment);
  return service.held.hold(
    at,
    nth,
    (request) => request.verb === verb && (tenant === "" || request.tenant === tenant),
  );
}
