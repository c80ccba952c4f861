import type { LeaseView } from "../../wire/overview.ts";
import { visible } from "../../wire/visible.ts";
import { to } from "../place.ts";
import { shortId } from "../words.ts";
import { Status } from "./status.tsx";
import { When } from "./when.tsx";

/** Where a lease's resource has a page of its own. */
function pageOf({ kind, resource_id }: LeaseView): string | null {
  if (kind === "session") return to("sessions", resource_id);
  if (kind === "admission") return to("jobs", resource_id);
  if (kind === "publication") return to("deliveries", resource_id);
  return kind === "work" ? to("work", resource_id) : null;
}

export function LeaseTable({ leases }: { readonly leases: readonly LeaseView[] }) {
  return (
    <table class="plain">
      <thead>
        <tr>
          <th scope="col">Of</th>
          <th scope="col">State</th>
          <th scope="col" class="number">
            Epoch
          </th>
          <th scope="col" class="number">
            Wakes
          </th>
        </tr>
      </thead>
      <tbody>
        {leases.map((lease) => {
          const page = pageOf(lease);
          const name = (
            <>
              {visible(lease.kind)} <code class="muted">{shortId(lease.resource_id)}</code>
            </>
          );
          return (
            <tr key={`${lease.kind} ${lease.resource_id}`}>
              <td>{page === null ? name : <a href={page}>{name}</a>}</td>
              <td>
                {lease.holder !== null && !lease.due ? (
                  <span title={`held by incarnation ${lease.holder}`}>
                    <Status state="held" tone="run" />
                  </span>
                ) : (
                  <Status state={lease.due ? "due" : "waits"} tone={lease.due ? "need" : "wait"} />
                )}
              </td>
              <td class="number">{lease.epoch}</td>
              <td class="number">
                <When at={lease.wake_at} />
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
