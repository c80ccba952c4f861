import type { WorkDetail, WorkProof } from "../../client/client.ts";
import { client } from "../account.ts";
import { Action } from "./action.tsx";

/** What can be done with an item as it is; what is not possible any more is refused by the server. */
export function WorkActions({ item, done }: { readonly item: WorkDetail; readonly done: () => void }) {
  if (item.finished_at !== null && !item.outcome_unknown) return null;
  const { id } = item;
  return (
    <>
      {item.outcome_unknown ? (
        <div class="note need">
          <p>
            Nobody knows whether an attempt had its effect: its worker was lost. Look at the other side, then
            say what you found. Your word stands in the record.
          </p>
          <Resolve item={item} verdict="applied" label="It was applied" done={done} />
          <Resolve item={item} verdict="not_applied" label="It was not applied" done={done} />
        </div>
      ) : null}
      <div class="buttons actions">
        {item.state === "suspended" ? (
          <>
            <Action
              label="Release"
              scope="work:operate"
              title="Release it?"
              confirm="Release it"
              work={() => client.releaseWork(id)}
              done={done}
            >
              <p>It goes back into its line, at its own time.</p>
            </Action>
            <Action
              label="Requeue"
              scope="work:operate"
              title="Requeue it?"
              confirm="Requeue it"
              work={() => client.requeueWork(id)}
              done={done}
            >
              <p>It goes back into its line, due at once where no plan says when.</p>
            </Action>
          </>
        ) : (
          <Action
            label="Suspend"
            scope="work:operate"
            title="Suspend it?"
            confirm="Suspend it"
            work={() => client.suspendWork(id)}
            done={done}
          >
            <p>It stays out of its line until it is released or requeued.</p>
          </Action>
        )}
        {item.cancel === null ? (
          <Action
            label="Cancel"
            scope="work:write"
            title="Cancel it?"
            confirm="Cancel it"
            danger
            field={{ label: "Reason", required: false }}
            work={(reason) => client.cancelWork(id, reason === "" ? {} : { reason })}
            done={done}
          >
            <p>No attempt begins any more. One that runs is told, and what it does still counts.</p>
          </Action>
        ) : null}
      </div>
    </>
  );
}

function Resolve({
  item,
  verdict,
  label,
  done,
}: {
  readonly item: WorkDetail;
  readonly verdict: WorkProof["verdict"];
  readonly label: string;
  readonly done: () => void;
}) {
  return (
    <Action
      label={label}
      scope="work:operate"
      title={`${label}?`}
      confirm="Record the proof"
      field={{ label: "How you know it", required: true }}
      work={(note) => client.resolveWork(item.id, { verdict, note })}
      done={done}
    >
      <p>
        {verdict === "applied"
          ? "The item has succeeded, and is never tried again."
          : "The attempt counts as one that did nothing."}
      </p>
    </Action>
  );
}
