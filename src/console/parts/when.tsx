import { now } from "../clock.ts";
import { between, exact, relative } from "../words.ts";

/** How long ago; the exact instant on hover and for programs. */
export function When({ at }: { readonly at: string | null }) {
  if (at === null) return <span class="none">–</span>;
  return (
    <time dateTime={at} title={exact(at)}>
      {relative(at, now.value)}
    </time>
  );
}

/** How long something took, or has taken so far. */
export function Took({ from, until }: { readonly from: string | null; readonly until: string | null }) {
  if (from === null) return <span class="none">–</span>;
  const text = until === null ? between(from, null, now.value) : between(from, until, 0);
  return <span class="number">{text}</span>;
}
