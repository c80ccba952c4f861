import type { ComponentChildren } from "preact";

/** Nothing is here, and what to do about it. */
export function Empty({
  title,
  children,
}: {
  readonly title: string;
  readonly children?: ComponentChildren;
}) {
  return (
    <div class="empty">
      <p class="lead">{title}</p>
      {children}
    </div>
  );
}

export function Loading() {
  return (
    <p class="loading" role="status">
      Reading …
    </p>
  );
}
