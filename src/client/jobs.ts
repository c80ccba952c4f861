import type { JobState, JobView } from "../wire/job.ts";
import type { CallOptions, Transport } from "./transport.ts";

export interface JobFilter extends CallOptions {
  readonly state?: JobState | undefined;
  readonly name?: string | undefined;
  /** All of these. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Jobs of a page. */
  readonly limit?: number | undefined;
}

export interface JobPage {
  readonly items: readonly JobView[];
  readonly next_page_token: string | null;
  /** Watch from here to miss nothing that changed since. */
  readonly cursor: string;
}

/** The jobs that fit a filter: all of them by iterating, or page by page. */
export interface JobList extends AsyncIterable<JobView> {
  page(token?: string): Promise<JobPage>;
}

export function listJobs(transport: Transport, filter: JobFilter): JobList {
  const page = async (token?: string): Promise<JobPage> => {
    const { value } = await transport.json<JobPage>({
      path: "/v1/jobs",
      query: {
        state: filter.state,
        name: filter.name,
        label: Object.entries(filter.labels ?? {}).map(([key, text]) => `${key}=${text}`),
        limit: filter.limit,
        page_token: token,
      },
      signal: filter.signal,
    });
    return value;
  };
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
