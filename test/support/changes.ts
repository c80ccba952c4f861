import { appendChange } from "../../src/core/change.store.ts";
import { type TenantId, uuidv7 } from "../../src/core/ids.ts";
import { type Transaction, transition } from "../../src/core/postgres/transition.ts";
import { type Kernel, tenantA } from "./kernel.ts";

/** One change of a resource that exists only in the log. */
export function append(
  tx: Transaction,
  change: {
    readonly resource?: string;
    readonly version?: bigint;
    readonly kind?: string;
    readonly body?: unknown;
  } = {},
): Promise<void> {
  const { resource = uuidv7(), version = 1n, kind = "job", body = {} } = change;
  return appendChange(tx, { kind, resource, root: resource, version, operation: "created", body });
}

/** The same, in a transition of its own. */
export function appendAlone(
  kernel: Pick<Kernel, "db">,
  change: Parameters<typeof append>[1] & { readonly tenant?: TenantId } = {},
): Promise<void> {
  const { tenant = tenantA, ...rest } = change;
  return transition(kernel.db, { role: "gateway", tenant, name: "append" }, (tx) => append(tx, rest));
}
