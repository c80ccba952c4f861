import type { Pool } from "pg";
import { brandId, type TenantId } from "../../src/core/ids.ts";
import { seconds } from "../../src/core/time.ts";
import { defineWork, type WorkContext, type WorkDefinition } from "../../src/work/define.ts";
import { legacy } from "../../src/work/policy.ts";
import type { EffectSafety } from "../../src/work/safety.ts";

export const effectTenant = brandId<TenantId>("acme");
export const effectLease = seconds(2);
/** For leases that a test lets pass, with a server away meanwhile. */
export const shortLease = seconds(3);

/** The outside world: a table that no one of ours looks into. `at` is told of each moment around the effect. */
export function effectOf(
  safety: EffectSafety,
  world: Pool,
  at: (moment: string) => Promise<void> | void,
): WorkDefinition {
  const apply = async (id: string, attempt: number, signal: AbortSignal) => {
    await at("before effect");
    signal.throwIfAborted();
    await world.query("insert into public.effects (work_id, attempt) values ($1, $2)", [id, attempt]);
    await at("after effect");
  };
  const base = {
    name: `effect-${safety.replaceAll("_", "-")}`,
    version: "1",
    policy: legacy({ initial: seconds(0), longest: seconds(0) }),
    run: (_: unknown, { id, attempt, signal }: WorkContext) => apply(id, attempt, signal),
  };
  if (safety !== "reconcile_before_retry") return defineWork({ ...base, safety });
  return defineWork({
    ...base,
    safety,
    async reconcile(_, { id }) {
      const { rowCount } = await world.query("select from public.effects where work_id = $1", [id]);
      return { applied: (rowCount ?? 0) > 0 };
    },
  });
}
