import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { ApiError } from "../../client/client.ts";
import { may } from "../account.ts";
import { failure } from "../live.ts";
import { Problem } from "./problem.tsx";

/** Does something once at a time, and keeps what went wrong. */
export function useDoing(done: () => void = () => {}) {
  const [doing, setDoing] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const run = async (work: () => Promise<unknown>): Promise<boolean> => {
    setDoing(true);
    setError(null);
    try {
      await work();
      done();
      return true;
    } catch (caught) {
      setError(failure(caught));
      return false;
    } finally {
      setDoing(false);
    }
  };
  return { doing, error, run };
}

/** A button that asks before it does something that is not taken back. */
export function Action({
  label,
  scope,
  title,
  children,
  confirm,
  danger = false,
  field,
  work,
  done,
}: {
  readonly label: string;
  readonly scope: string;
  readonly title: string;
  /** What will happen. */
  readonly children: ComponentChildren;
  readonly confirm: string;
  readonly danger?: boolean;
  /** What has to be, or may be, said with it. */
  readonly field?: { readonly label: string; readonly required: boolean };
  readonly work: (text: string) => Promise<unknown>;
  readonly done?: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [open, setOpen] = useState(false);
  const [text, setText] = useState("");
  const { doing, error, run } = useDoing(done);
  // At once: an event of the dialog's last closing may still be on its way.
  useLayoutEffect(() => {
    if (open) dialog.current?.showModal();
    else dialog.current?.close();
  }, [open]);
  const allowed = may(scope);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (await run(() => work(text.trim()))) {
      setOpen(false);
      setText("");
    }
  };
  return (
    <>
      <button
        type="button"
        class={danger ? "danger" : undefined}
        disabled={!allowed}
        title={allowed ? undefined : `The token lacks the scope ${scope}`}
        onClick={() => setOpen(true)}
      >
        {label}
      </button>
      <dialog
        ref={dialog}
        aria-label={title}
        onCancel={() => setOpen(false)}
        onClose={() => setOpen(dialog.current?.open ?? false)}
      >
        {open ? (
          <form onSubmit={(event) => void submit(event)}>
            <h2>{title}</h2>
            {children}
            {field === undefined ? null : (
              <label class="stacked">
                {field.label}
                <input
                  value={text}
                  required={field.required}
                  maxLength={500}
                  onInput={(event) => setText(event.currentTarget.value)}
                />
              </label>
            )}
            {error === null ? null : <Problem error={error} />}
            <div class="buttons">
              <button type="button" onClick={() => setOpen(false)}>
                Back
              </button>
              <button type="submit" class={danger ? "danger primary" : "primary"} disabled={doing}>
                {doing ? "…" : confirm}
              </button>
            </div>
          </form>
        ) : null}
      </dialog>
    </>
  );
}
