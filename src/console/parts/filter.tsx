import { useRef } from "preact/hooks";
import { filterBy, place } from "../place.ts";

/** The filters of a list. They are in the address: a filtered list can be linked. */
export function Filters({ children }: { readonly children: preact.ComponentChildren }) {
  return (
    // oxlint-disable-next-line no-misused-promises -- It only keeps the browser from sending it.
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      {children}
    </form>
  );
}

export function Choice({
  name,
  label,
  options,
}: {
  readonly name: string;
  readonly label: string;
  readonly options: readonly string[];
}) {
  const value = place.value.query.get(name) ?? "";
  return (
    <label>
      {label}
      <select value={value} onChange={(event) => filterBy({ [name]: event.currentTarget.value })}>
        <option value="">any</option>
        {options.map((option) => (
          <option key={option} value={option}>
            {option.replaceAll("_", " ")}
          </option>
        ))}
      </select>
    </label>
  );
}

const restMs = 250;

export function Text({
  name,
  label,
  hint,
}: {
  readonly name: string;
  readonly label: string;
  readonly hint?: string;
}) {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const value = place.value.query.get(name) ?? "";
  return (
    <label>
      {label}
      <input
        type="search"
        value={value}
        placeholder={hint}
        autocomplete="off"
        spellcheck={false}
        onInput={(event) => {
          const typed = event.currentTarget.value.trim();
          clearTimeout(timer.current);
          timer.current = setTimeout(() => filterBy({ [name]: typed }), restMs);
        }}
      />
    </label>
  );
}

export const asked = (name: string): string | undefined => place.value.query.get(name) ?? undefined;

/** `a=1, b=2`, as labels are typed. */
export function askedLabels(name = "label"): Readonly<Record<string, string>> {
  const pairs = (asked(name) ?? "").split(",").map((pair) => pair.trim());
  return Object.fromEntries(
    pairs
      .filter((pair) => pair.includes("="))
      .map((pair) => {
        const at = pair.indexOf("=");
        return [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
      }),
  );
}
