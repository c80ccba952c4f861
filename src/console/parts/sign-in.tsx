import { useEffect, useRef, useState } from "preact/hooks";
import { enter } from "../account.ts";
import { useDoing } from "./action.tsx";
import { Mark } from "./mark.tsx";
import { Problem } from "./problem.tsx";

/** The token leaves this form once, in a header, and is forgotten. */
export function SignInForm({ why }: { readonly why: "expired" | null }) {
  const [token, setToken] = useState("");
  const field = useRef<HTMLInputElement>(null);
  const { doing, error, run } = useDoing();
  useEffect(() => {
    document.title = "Sign in · Holdfast";
    field.current?.focus();
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    const given = token.trim();
    if (given === "" || doing) return;
    await run(() => enter(given));
    setToken("");
  };
  return (
    <main class="sign-in">
      <form onSubmit={(event) => void submit(event)}>
        <p class="brand">
          <Mark />
          Holdfast
        </p>
        <h1>Sign in</h1>
        {why === null ? null : (
          <p class="note need" role="alert">
            Your token has expired or was revoked. Sign in again and you are where you were.
          </p>
        )}
        <label class="stacked">
          Token
          <input
            ref={field}
            type="password"
            name="token"
            value={token}
            autocomplete="off"
            spellcheck={false}
            required
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        {error === null ? null : <Problem error={error} />}
        <button type="submit" class="primary" disabled={doing}>
          {doing ? "Signing in …" : "Sign in"}
        </button>
        <p class="muted small">
          <code>npm start</code> and <code>holdfast dev</code> print one; an operator makes others with{" "}
          <code>holdfast token create</code>. It is sealed into a cookie that no script can read.
        </p>
      </form>
    </main>
  );
}
