import type { TenantId } from "../core/ids.ts";

/** What a publisher does at once, in one process. */
export interface DeliveryBounds {
  readonly deliveriesMax: number;
  readonly tenantMax: number;
  /** Of one tenant, to one origin. */
  readonly originMax: number;
}

export const deliveryBounds: DeliveryBounds = { deliveriesMax: 64, tenantMax: 16, originMax: 4 };

/** Counts what is under way, so that a slow tenant or a hanging destination never has all of it. */
export interface Places {
  readonly taken: number;
  /** How many more may be claimed, how many of them of any one tenant, and which tenants have enough. */
  room(): { readonly limit: number; readonly quota: number; readonly full: readonly TenantId[] };
  enter(tenant: TenantId): () => void;
  /** Null when the origin has as many as it may. */
  enterOrigin(tenant: TenantId, origin: string): (() => void) | null;
}

export function openPlaces({ deliveriesMax, tenantMax, originMax }: DeliveryBounds): Places {
  const tenants = new Map<TenantId, number>();
  const origins = new Map<string, number>();
  let taken = 0;
  return {
    get taken() {
      return taken;
    },
    room() {
      const counts = [...tenants.values()].filter((count) => count < tenantMax);
      return {
        limit: deliveriesMax - taken,
        quota: tenantMax - Math.max(0, ...counts),
        full: [...tenants].filter(([, count]) => count >= tenantMax).map(([tenant]) => tenant),
      };
    },
    enter(tenant) {
      taken += 1;
      const leave = counted(tenants, tenant);
      return () => {
        taken -= 1;
        leave();
      };
    },
    enterOrigin(tenant, origin) {
      const key = `${tenant} ${origin}`;
      return (origins.get(key) ?? 0) >= originMax ? null : counted(origins, key);
    },
  };
}

/** Keys that count nothing go, so that the map is no larger than what is under way. */
function counted<Key>(counts: Map<Key, number>, key: Key): () => void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
  return () => {
    const left = (counts.get(key) ?? 0) - 1;
    if (left > 0) counts.set(key, left);
    else counts.delete(key);
  };
}
