import { useEffect, useRef, useState } from "preact/hooks";
import type { ApiError, ChangeEvent } from "../client/client.ts";
import type { Page } from "../client/pages.ts";
import { failure, gaps, link, onChange } from "./live.ts";

export interface Item {
  readonly id: string;
  readonly resource_version?: string;
}

export interface Listing<T> {
  /** Null before the first page. */
  readonly items: readonly T[] | null;
  readonly error: ApiError | null;
  readonly more: boolean;
  readonly loading: boolean;
  readonly next: () => void;
  readonly reload: () => void;
}

export interface ListSource<T> {
  /** Another key is another list. */
  readonly key: string;
  readonly page: (token: string | undefined, signal: AbortSignal) => Promise<Page<T>>;
  /** What a change says of an item of this list; `look`: something here has changed, and only the list knows what. */
  readonly read?: (change: ChangeEvent) => T | "look" | null;
  /** Whether it is still in the list as it is filtered. */
  readonly fits?: (item: T) => boolean;
}

/** However many changes come, the newest page is read again no more often. */
const restMs = 300;

/** The pages of a list, newest first, which changes keep right without reading them all again. */
class Pager<T extends Item> {
  items: T[] | null = null;
  error: ApiError | null = null;
  loading = false;
  source: ListSource<T>;
  #token: string | undefined;
  #more = true;
  #dirty = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #gone = new AbortController();
  readonly #changed: () => void;

  constructor(source: ListSource<T>, changed: () => void) {
    this.source = source;
    this.#changed = changed;
  }

  get more(): boolean {
    return this.items !== null && this.#more;
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#gone.abort();
  }

  /** The newest page: what it has is put in front of what is known. */
  first(): Promise<void> {
    return this.#read(undefined, (page) => {
      const known = this.items;
      if (known === null) {
        this.#token = page.next_page_token ?? undefined;
        this.#more = page.next_page_token !== null;
        this.items = [...page.items];
        return;
      }
      const fresh = new Map(page.items.map((item) => [item.id, item]));
      const last = page.items.at(-1)?.id;
      const end = last === undefined ? 0 : known.findIndex(({ id }) => id === last) + 1;
      // Where the two don't meet, more is new than a page has: begin anew.
      if (page.next_page_token === null || end === 0) {
        this.#token = page.next_page_token ?? undefined;
        this.#more = page.next_page_token !== null;
        this.items = [...page.items];
      } else {
        this.items = [...page.items, ...known.slice(end).filter(({ id }) => !fresh.has(id))];
      }
    });
  }

  next(): Promise<void> {
    if (!this.more || this.loading) return Promise.resolve();
    return this.#read(this.#token, (page) => {
      const known = new Set((this.items ?? []).map(({ id }) => id));
      this.items = [...(this.items ?? []), ...page.items.filter(({ id }) => !known.has(id))];
      this.#token = page.next_page_token ?? undefined;
      this.#more = page.next_page_token !== null;
    });
  }

  reset(): void {
    this.items = null;
    this.#changed();
    void this.first();
  }

  hear(change: ChangeEvent): void {
    const item = this.source.read?.(change) ?? null;
    if (item === null) return;
    if (item === "look") return this.#soon();
    const index = this.items?.findIndex(({ id }) => id === item.id) ?? -1;
    const known = this.items?.[index];
    if (known === undefined || this.items === null) {
      if (this.source.fits?.(item) !== false) this.#soon();
      return;
    }
    if (BigInt(item.resource_version ?? 0) <= BigInt(known.resource_version ?? 0)) return;
    this.items =
      this.source.fits?.(item) === false ? this.items.toSpliced(index, 1) : this.items.with(index, item);
    this.#changed();
  }

  /** What could not be read is read when it can be again. */
  back(): void {
    if (this.error !== null) this.#soon();
  }

  #soon(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      void this.first();
    }, restMs);
  }

  async #read(token: string | undefined, take: (page: Page<T>) => void): Promise<void> {
    if (this.loading) {
      this.#dirty = true;
      return;
    }
    this.loading = true;
    this.#changed();
    const { signal } = this.#gone;
    try {
      const page = await this.source.page(token, signal);
      if (signal.aborted) return;
      take(page);
      this.error = null;
    } catch (error) {
      if (signal.aborted) return;
      this.error = failure(error);
    }
    this.loading = false;
    this.#changed();
    if (this.#dirty) {
      this.#dirty = false;
      this.#soon();
    }
  }
}

export function useListing<T extends Item>(source: ListSource<T>): Listing<T> {
  const [, setShown] = useState(0);
  const pager = useRef<{ readonly key: string; readonly pager: Pager<T> } | null>(null);
  if (pager.current?.key !== source.key) {
    pager.current?.pager.close();
    pager.current = { key: source.key, pager: new Pager(source, () => setShown((before) => before + 1)) };
  }
  const { pager: list } = pager.current;
  list.source = source;

  useEffect(() => {
    let begun = false;
    const stopListening = onChange((change) => list.hear(change));
    const stopLink = link.subscribe(({ state }) => {
      if (state === "live") list.back();
    });
    const stopGaps = gaps.subscribe(() => {
      if (begun) list.reset();
      else void list.first();
      begun = true;
    });
    return () => {
      stopListening();
      stopLink();
      stopGaps();
      list.close();
    };
  }, [source.key]);

  return {
    items: list.items,
    error: list.error,
    more: list.more,
    loading: list.loading,
    next: () => void list.next(),
    reload: () => list.reset(),
  };
}
