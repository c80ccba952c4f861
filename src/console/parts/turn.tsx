import type { ActivationView, ChangeEvent } from "../../client/client.ts";
import { visible } from "../../wire/visible.ts";
import { client } from "../account.ts";
import { Action } from "./action.tsx";
import { Said } from "./facts.tsx";
import { Status } from "./status.tsx";
import { Took, When } from "./when.tsx";

/** One turn: what was asked, what its agent said meanwhile, what came of it, and what it needs. */
export function Turn({
  turn,
  events,
  done,
}: {
  readonly turn: ActivationView;
  readonly events: readonly ChangeEvent[];
  readonly done: () => void;
}) {
  const over = turn.finished_at !== null;
  return (
    <li class="turn" data-activation={turn.id}>
      <div class="turn-head">
        <span class="number">{turn.ordinal}</span>
        <Status state={turn.state} />
        {turn.runs > 1 ? <span class="muted">run {turn.runs}</span> : null}
        <span class="grow" />
        {turn.started_at === null ? null : <Took from={turn.started_at} until={turn.finished_at} />}
        <When at={turn.admitted_at} />
      </div>
      <div class="bubble asked">
        <Said said={turn.stimulus} />
      </div>
      <Events turn={turn} events={events} />
      {turn.reply === null ? null : (
        <div class="bubble replied">
          <Said said={turn.reply} />
          {turn.revision === null ? null : <p class="muted small">committed as revision {turn.revision}</p>}
        </div>
      )}
      {turn.failure === null ? null : (
        <p class="note bad">
          {visible(turn.failure.message)} <code>{turn.failure.code}</code>
        </p>
      )}
      {turn.failure !== null || turn.last_failure === null || over ? null : (
        <p class="note">
          The run before failed: {visible(turn.last_failure.message)} <code>{turn.last_failure.code}</code>
        </p>
      )}
      {turn.cancel_requested_at === null ? null : (
        <p class="muted small">
          {over ? "Cancelled" : "Being cancelled"}: {visible(turn.cancel_reason ?? "requested")}
        </p>
      )}
      <Needed turn={turn} done={done} />
      {over || turn.cancel_requested_at !== null ? null : (
        <div class="buttons">
          <Action
            label="Cancel turn"
            scope="sessions:write"
            title={`Cancel turn ${turn.ordinal}?`}
            confirm="Cancel the turn"
            danger
            field={{ label: "Reason", required: false }}
            work={(reason) =>
              client.cancelActivation(turn.session_id, turn.id, reason === "" ? {} : { reason })
            }
            done={done}
          >
            <p>
              Its run is stopped and the head stays where it is, unless its checkpoint is committed first.
            </p>
          </Action>
        </div>
      )}
    </li>
  );
}

function Events({
  turn,
  events,
}: {
  readonly turn: ActivationView;
  readonly events: readonly ChangeEvent[];
}) {
  const own = events.flatMap(({ operation, body, at, cursor }) => {
    if (operation !== "activation.event" || typeof body !== "object" || body === null) return [];
    const { activation_id, name, data } = body as Readonly<Record<string, unknown>>; // just looked
    if (activation_id !== turn.id || typeof name !== "string") return [];
    return [{ name, data: JSON.stringify(data ?? {}), at, cursor }];
  });
  if (own.length === 0) return null;
  return (
    <ul class="events" aria-label={`Events of turn ${turn.ordinal}`}>
      {own.map(({ name, data, at, cursor }) => (
        <li key={cursor}>
          <span>{visible(name)}</span> {data === "{}" ? null : <code>{visible(data)}</code>}
          <span class="grow" />
          <When at={at} />
        </li>
      ))}
    </ul>
  );
}

function Needed({ turn, done }: { readonly turn: ActivationView; readonly done: () => void }) {
  const { required_action: action, session_id: session } = turn;
  if (action === null || turn.state !== "waiting") return null;
  return (
    <div class="note need">
      <p>
        {action.type === "grant_permission" ? (
          <>
            It needs <code>{visible(action.permission)}</code>:{" "}
          </>
        ) : (
          "It waits for somebody to try again: "
        )}
        {visible(action.reason)}
      </p>
      {action.type === "grant_permission" ? (
        <Action
          label={`Grant ${action.permission}`}
          scope="sessions:write"
          title={`Grant ${action.permission}?`}
          confirm="Grant it"
          work={() => client.grantPermission(session, action.permission)}
          done={done}
        >
          <p>The session has this permission from now on, and the turn runs again.</p>
        </Action>
      ) : (
        <Action
          label="Run it again"
          scope="sessions:write"
          title={`Run turn ${turn.ordinal} again?`}
          confirm="Run it"
          work={() => client.retryActivation(session, turn.id)}
          done={done}
        >
          <p>It begins from the session's head, which has not moved.</p>
        </Action>
      )}
    </div>
  );
}
