import { useRef, useState } from "preact/hooks";
import type { SessionView } from "../../client/client.ts";
import { client, may } from "../account.ts";
import { useDoing } from "./action.tsx";
import { Problem } from "./problem.tsx";

/** A UUID where `crypto.randomUUID` may be missing: pages that came by plain HTTP. */
function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

/** Says something to a session. Sent again after a failure it has the same id, so it is admitted once (S2). */
export function Composer({ session, done }: { readonly session: SessionView; readonly done: () => void }) {
  const [text, setText] = useState("");
  const id = useRef(newId());
  const { doing, error, run } = useDoing(done);
  const closed = session.desired_state === "closed" || session.desired_state === "deleted";
  const allowed = may("sessions:write");
  if (closed) return <p class="muted">The session takes no more messages.</p>;
  const send = async (event: Event) => {
    event.preventDefault();
    if (text.trim() === "" || doing) return;
    const activation = { id: id.current, stimulus: { text } };
    if (!(await run(() => client.admitActivation(session.id, activation)))) return;
    setText("");
    id.current = newId();
  };
  return (
    <form class="composer" onSubmit={(event) => void send(event)}>
      <label class="stacked">
        Message
        <textarea
          rows={3}
          value={text}
          disabled={!allowed}
          maxLength={60_000}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void send(event);
          }}
        />
      </label>
      {error === null ? null : <Problem error={error} />}
      <div class="buttons">
        <span class="muted small grow">
          {allowed ? "Ctrl+Enter sends it." : "The token lacks the scope sessions:write."}
        </span>
        <button type="submit" class="primary" disabled={!allowed || doing || text.trim() === ""}>
          {doing ? "Sending …" : "Send"}
        </button>
      </div>
    </form>
  );
}
