import { useState } from "preact/hooks";
import type { ChangeEvent } from "../../client/client.ts";
import { visible } from "../../wire/visible.ts";
import { to } from "../place.ts";
import { shortId } from "../words.ts";
import { Json } from "./facts.tsx";
import { When } from "./when.tsx";

/** Where to look at what changed; null where there is no page for it. */
export function pageOf({ kind, id, root_id }: ChangeEvent): string | null {
  if (kind === "job" || kind === "attempt" || kind === "artifact") return to("jobs", root_id);
  if (kind === "session" || kind === "activation") return to("sessions", root_id);
  if (kind === "delivery") return to("deliveries", id);
  // One change tells of many items.
  return kind === "work" ? to("work") : null;
}

const shownMax = 200;

/** Changes, newest first, each with all that it says. */
export function ChangeLines({
  changes,
  linked = false,
}: {
  readonly changes: readonly ChangeEvent[];
  readonly linked?: boolean;
}) {
  if (changes.length === 0) return <p class="muted">Nothing so far.</p>;
  return (
    <ol class="changes">
      {changes
        .slice(-shownMax)
        .toReversed()
        .map((change) => (
          <ChangeLine key={change.cursor} change={change} page={linked ? pageOf(change) : null} />
        ))}
    </ol>
  );
}

function ChangeLine({ change, page }: { readonly change: ChangeEvent; readonly page: string | null }) {
  const [open, setOpen] = useState(false);
  return (
    <li>
      <details onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <span class="operation">{visible(change.operation)}</span>
          <code class="muted">{shortId(change.id)}</code>
          <span class="grow" />
          <When at={change.at} />
        </summary>
        {page === null ? null : (
          <p>
            <a href={page}>Open it</a>
          </p>
        )}
        {open ? <Json value={change.body} /> : null}
      </details>
    </li>
  );
}
