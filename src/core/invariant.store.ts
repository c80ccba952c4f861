import { brandId, type TenantId } from "./ids.ts";
import type { Invariant, Violation } from "./invariant.ts";
import { joinWholeTables } from "./invariants.sql.ts";
import { type Database, view } from "./postgres/transition.ts";
import { type PageTenantsRow, pageTenants } from "./tenant.sql.ts";

/** One violation, and what it breaks. */
export interface Finding extends Violation {
  readonly check: string;
  readonly promises: readonly string[];
  /** Null when it is the installation's. */
  readonly tenant: TenantId | null;
  readonly next: string;
}

const tenantsPage = 1000n;

/**
 * Asks a store whether what is always true is true. Each invariant is one consistent look of its own, so a
 * store that is at work is never taken for a broken one, and no look lasts longer than a statement may. At most
 * `limit` findings of each.
 */
export async function findViolations(
  db: Database,
  invariants: readonly Invariant[],
  options: {
    /** Only this one's; all tenants' and the installation's when it is null. */
    readonly tenant: TenantId | null;
    readonly limit: number;
  },
): Promise<Finding[]> {
  const found: Finding[] = [];
  const check = async (invariant: Invariant, tenant: TenantId | null) => {
    const { name, role, promises, next } = invariant;
    const violations = await view(db, { role, tenant, name: `check ${name}` }, async (tx) => {
      await tx.run(joinWholeTables, {});
      return invariant.find(tx, options.limit);
    });
    for (const violation of violations) found.push({ check: name, promises, tenant, ...violation, next });
  };
  if (options.tenant === null) {
    for (const invariant of invariants.filter(({ of }) => of === "installation"))
      await check(invariant, null);
  }
  const tenants = options.tenant === null ? allTenants(db) : [options.tenant];
  for await (const tenant of tenants) {
    for (const invariant of invariants.filter(({ of }) => of === "tenant")) await check(invariant, tenant);
  }
  return found;
}

/** Only operators see all of them. */
export async function* allTenants(db: Database): AsyncGenerator<TenantId> {
  for (let after: string | null = null; ; ) {
    const rows: PageTenantsRow[] = await view(
      db,
      { role: "operator", tenant: null, name: "pageTenants" },
      (tx) => tx.run(pageTenants, { after, limit: tenantsPage }),
    );
    for (const row of rows) yield brandId<TenantId>(row.tenant_id);
    const last = rows.at(-1);
    if (last === undefined || rows.length < tenantsPage) return;
    after = last.tenant_id;
  }
}
