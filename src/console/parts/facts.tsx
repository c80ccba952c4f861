import type { ComponentChildren } from "preact";
import { visible } from "../../wire/visible.ts";

/** A name and what it is, in two columns. */
export function Facts({ children }: { readonly children: ComponentChildren }) {
  return <dl class="facts">{children}</dl>;
}

export function Fact({ name, children }: { readonly name: string; readonly children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

/** An id or digest: whole, in one width, and broken where a narrow page needs it. */
export function Id({ children }: { readonly children: string }) {
  return <code class="id">{visible(children)}</code>;
}

export function Labels({ labels }: { readonly labels: Readonly<Record<string, string>> }) {
  const all = Object.entries(labels);
  if (all.length === 0) return <span class="none">–</span>;
  return (
    <ul class="labels">
      {all.map(([name, value]) => (
        <li key={name}>
          {visible(name)}
          {value === "" ? "" : `=${visible(value)}`}
        </li>
      ))}
    </ul>
  );
}

/** Any JSON, as text. */
export function Json({ value }: { readonly value: unknown }) {
  const text = JSON.stringify(value, null, 2) ?? "";
  return (
    <pre class="json" tabIndex={0}>
      {text.split("\n").map(visible).join("\n")}
    </pre>
  );
}

/** What somebody said: its text where that is all there is, else JSON. */
export function Said({ said }: { readonly said: Readonly<Record<string, unknown>> | null }) {
  if (said === null) return null;
  const { text, ...rest } = said;
  if (typeof text !== "string" || Object.keys(rest).length > 0) return <Json value={said} />;
  return <p class="said">{text.split("\n").map(visible).join("\n")}</p>;
}

/** Why nothing of it goes on until somebody does something. */
export function Held({ blocked }: { readonly blocked: { readonly message: string } | undefined }) {
  return blocked === undefined ? null : <p class="note need">It is blocked: {visible(blocked.message)}</p>;
}
