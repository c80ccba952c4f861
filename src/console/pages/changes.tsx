import { useState } from "preact/hooks";
import type { ChangeEvent } from "../../client/client.ts";
import { recent, since } from "../live.ts";
import { ChangeLines } from "../parts/changes.tsx";
import { Empty } from "../parts/empty.tsx";
import { asked, Choice, Filters, Text } from "../parts/filter.tsx";
import { Page } from "../parts/page.tsx";
import { When } from "../parts/when.tsx";
import { counted } from "../words.ts";

const kinds = ["job", "attempt", "session", "activation", "agent", "delivery", "work"];

export function Changes() {
  const [held, hold] = useState<readonly ChangeEvent[] | null>(null);
  const kind = asked("kind");
  const id = asked("id");
  const all = held ?? recent.value;
  const shown = all.filter(
    (change) =>
      (kind === undefined || change.kind === kind) &&
      (id === undefined || change.id.includes(id) || change.root_id.includes(id)),
  );
  return (
    <Page
      title="Changes"
      beside={
        <>
          <span class="grow" />
          <button
            type="button"
            aria-pressed={held !== null}
            onClick={() => hold(held === null ? recent.value : null)}
          >
            {held === null ? "Hold still" : "Go on"}
          </button>
        </>
      }
    >
      <p class="muted">
        Every change of the tenant as it is committed, in order. {counted(recent.value.length, "change")}{" "}
        since <When at={new Date(since.value).toISOString()} />.
      </p>
      <Filters>
        <Choice name="kind" label="Kind" options={kinds} />
        <Text name="id" label="Id" hint="a part of it" />
      </Filters>
      {shown.length === 0 ? (
        <Empty title="Nothing has changed since you signed in.">
          <p>
            Leave this open and submit a job: <code>holdfast run job.yaml</code>. Earlier changes:{" "}
            <code>holdfast watch --after CURSOR</code>.
          </p>
        </Empty>
      ) : (
        <ChangeLines changes={shown} linked />
      )}
    </Page>
  );
}
