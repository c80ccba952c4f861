import type { ComponentChildren } from "preact";
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Item, Listing } from "../listing.ts";
import { counted } from "../words.ts";
import { Loading } from "./empty.tsx";
import { Problem } from "./problem.tsx";

export interface Column<T> {
  readonly name: string;
  readonly cell: (item: T) => ComponentChildren;
  /** Left out on a narrow screen. */
  readonly wide?: boolean;
  readonly number?: boolean;
  /** As wide as a state; the others share what is left. */
  readonly state?: boolean;
}

const rowHeight = 44;
const around = 12;
const allMax = 60;

/**
 * The rows of a list, of which only those on the screen are in the page: ten thousand scroll like ten. More are
 * read when the end comes near.
 */
export function Rows<T extends Item>({
  listing,
  columns,
  label,
  noun,
  empty,
}: {
  readonly listing: Listing<T>;
  readonly columns: readonly Column<T>[];
  readonly label: string;
  readonly noun: string;
  readonly empty: ComponentChildren;
}) {
  const { items, error, more, loading, next, reload } = listing;
  const [body, [first, end]] = useWindow(items?.length ?? 0);
  const near = items !== null && end >= items.length - around;
  useEffect(() => {
    if (near && more && !loading && error === null) next();
  }, [near, more, loading, error, items?.length]);

  if (items === null) return error === null ? <Loading /> : <Problem error={error} again={reload} />;
  // A page may have nothing that fits, and not be the last.
  if (items.length === 0 && error === null) return more ? <Loading /> : <>{empty}</>;
  return (
    <>
      {error === null ? null : <Problem error={error} again={reload} />}
      <table class="rows" aria-label={label} aria-rowcount={more ? -1 : items.length + 1}>
        <thead>
          <tr>
            {columns.map(({ name, wide, number, state }) => (
              <th key={name} scope="col" class={classOf(wide, number, state)}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody ref={body}>
          <Gap rows={first} columns={columns.length} />
          {items.slice(first, end).map((item, index) => (
            <tr key={item.id} aria-rowindex={first + index + 2}>
              {columns.map(({ name, cell, wide, number }) => (
                <td key={name} class={classOf(wide, number)}>
                  {cell(item)}
                </td>
              ))}
            </tr>
          ))}
          <Gap rows={items.length - end} columns={columns.length} />
        </tbody>
      </table>
      <p class="muted small rows-end" aria-live="polite">
        {counted(items.length, noun)}
        {more ? (
          <>
            {" and more · "}
            <button type="button" class="link" onClick={next} disabled={loading}>
              {loading ? "reading …" : "read more"}
            </button>
          </>
        ) : (
          ""
        )}
      </p>
    </>
  );
}

const classOf = (wide?: boolean, number?: boolean, state?: boolean) =>
  [wide === true ? "wide" : "", number === true ? "number" : "", state === true ? "of-state" : ""]
    .join(" ")
    .trim() || undefined;

function Gap({ rows, columns }: { readonly rows: number; readonly columns: number }) {
  if (rows <= 0) return null;
  return (
    <tr class="gap" aria-hidden="true" style={{ height: `${rows * rowHeight}px` }}>
      <td colSpan={columns} />
    </tr>
  );
}

/** Which rows are on the screen, and some around them. A short list is always whole. */
function useWindow(length: number) {
  const body = useRef<HTMLTableSectionElement>(null);
  const [range, setRange] = useState<readonly [number, number]>([0, allMax]);
  const look = useCallback(() => {
    const top = body.current?.getBoundingClientRect().top ?? 0;
    const first = Math.max(0, Math.floor(-top / rowHeight) - around);
    const end = Math.ceil((innerHeight - top) / rowHeight) + around;
    setRange((before) => (before[0] === first && before[1] === end ? before : [first, end]));
  }, []);
  useLayoutEffect(look, [length]);
  useEffect(() => {
    const options = { passive: true };
    addEventListener("scroll", look, options);
    addEventListener("resize", look, options);
    return () => {
      removeEventListener("scroll", look);
      removeEventListener("resize", look);
    };
  }, []);
  const whole = length <= allMax;
  const shown: readonly [number, number] = whole
    ? [0, length]
    : [Math.min(range[0], length), Math.min(Math.max(range[1], 1), length)];
  return [body, shown] as const;
}
