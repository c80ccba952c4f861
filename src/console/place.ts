import { signal } from "@preact/signals";

/** What the address shows: the segments behind `/console`, and the query. */
export interface Place {
  readonly path: readonly string[];
  readonly query: URLSearchParams;
}

const base = "/console";

function read(): Place {
  const segments = location.pathname.slice(base.length).split("/").filter(Boolean);
  return { path: segments.map(decoded), query: new URLSearchParams(location.search) };
}

/** An address that somebody typed need not be well formed. */
function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

export const place = signal(read());

/** The address of a page: `to("jobs", id)`. */
export const to = (...segments: readonly string[]): string =>
  [base, ...segments.map(encodeURIComponent)].join("/");

export function go(href: string): void {
  history.pushState(null, "", href);
  place.value = read();
  scrollTo(0, 0);
  // Whoever can't see the page change is told by the heading, from which Tab goes on.
  requestAnimationFrame(() => document.querySelector<HTMLElement>("main h1")?.focus());
}

/** Change the query in place: filters are part of the address, but no step back. */
export function filterBy(changes: Readonly<Record<string, string>>): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState(null, "", text === "" ? location.pathname : `${location.pathname}?${text}`);
  place.value = read();
}

/** Links are links; those to our own pages don't load the page again. */
export function followLinks(): void {
  addEventListener("popstate", () => {
    place.value = read();
  });
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || link.target !== "" || link.hasAttribute("download")) return;
    if (link.origin !== location.origin || !`${link.pathname}/`.startsWith(`${base}/`)) return;
    if (link.hash !== "" && link.pathname === location.pathname) return;
    event.preventDefault();
    go(link.href);
  });
}
