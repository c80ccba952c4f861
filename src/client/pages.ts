import type { Request, Transport } from "./transport.ts";

/** One page of a list. */
export interface Page<T> {
  readonly items: readonly T[];
  readonly next_page_token: string | null;
}

/** What fits a filter: all of it by iterating, or page by page. */
export interface Pages<T, P extends Page<T> = Page<T>> extends AsyncIterable<T> {
  page(token?: string): Promise<P>;
}

export function pages<T, P extends Page<T> = Page<T>>(
  transport: Transport,
  request: Pick<Request, "path" | "query" | "signal">,
): Pages<T, P> {
  const page = async (token?: string): Promise<P> =>
    (await transport.json<P>({ ...request, query: { ...request.query, page_token: token } })).value;
  return {
    page,
    async *[Symbol.asyncIterator]() {
      let token: string | undefined;
      do {
        const { items, next_page_token } = await page(token);
        yield* items;
        token = next_page_token ?? undefined;
      } while (token !== undefined);
    },
  };
}

/** A page of a list whose items change: watch from `cursor` to miss nothing that changed since. */
export interface WatchedPage<T> extends Page<T> {
  readonly cursor: string;
}

export const labelQuery = (labels: Readonly<Record<string, string>> = {}): readonly string[] =>
  Object.entries(labels).map(([key, text]) => `${key}=${text}`);
