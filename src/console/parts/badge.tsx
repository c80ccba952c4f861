import { visible } from "../../wire/visible.ts";
import { now } from "../clock.ts";
import { link, reconnect } from "../live.ts";
import { Status } from "./status.tsx";

/** How fresh what is shown is. */
export function Badge() {
  const { value } = link;
  return (
    <div class="badge" role="status" data-link={value.state.replaceAll(" ", "-")}>
      <Status state={value.state === "catching up" ? "catching" : value.state} word={value.state} />
    </div>
  );
}

/** Says it where nobody can overlook it: what is shown may have changed since. */
export function Banner() {
  const { value } = link;
  if (value.state !== "disconnected") return null;
  const refused = value.error.status === 403;
  const seconds = Math.max(0, Math.ceil((value.again - now.value) / 1_000));
  return (
    <div class="banner" role="alert">
      <p>
        <strong>{refused ? "Changes don't show up by themselves." : "Not connected."}</strong>{" "}
        {refused
          ? "The token lacks the scope watch:read: reload to see what is new."
          : `What is shown is as it was. ${visible(value.error.detail)}`}
      </p>
      {refused ? null : (
        <button type="button" onClick={reconnect}>
          Try now{seconds > 0 ? ` (${seconds} s)` : ""}
        </button>
      )}
    </div>
  );
}
