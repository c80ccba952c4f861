import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { visible } from "../../wire/visible.ts";

/** A page: its heading takes the focus when somebody comes to it. */
export function Page({
  title,
  above,
  beside,
  children,
}: {
  readonly title: string;
  /** Where it belongs: a link. */
  readonly above?: { readonly href: string; readonly name: string };
  /** Beside the heading: its state, and what can be done. */
  readonly beside?: ComponentChildren;
  readonly children: ComponentChildren;
}) {
  const shown = visible(title);
  useEffect(() => {
    document.title = `${shown} · Holdfast`;
  }, [shown]);
  return (
    <>
      <header class="heading">
        {above === undefined ? null : (
          <p class="above">
            <a href={above.href}>{above.name}</a>
          </p>
        )}
        <div class="headline">
          <h1 tabIndex={-1}>{shown}</h1>
          {beside}
        </div>
      </header>
      {children}
    </>
  );
}

export function Section({
  title,
  beside,
  children,
}: {
  readonly title: string;
  readonly beside?: ComponentChildren;
  readonly children: ComponentChildren;
}) {
  const id = `s-${title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-")}`;
  return (
    <section aria-labelledby={id}>
      <div class="section-head">
        <h2 id={id}>{title}</h2>
        {beside}
      </div>
      {children}
    </section>
  );
}
