import type { JobState, JobView } from "../wire/job.ts";
import { labelQuery, type Pages, pages, type WatchedPage } from "./pages.ts";
import type { CallOptions, Transport } from "./transport.ts";

export interface JobFilter extends CallOptions {
  readonly state?: JobState | undefined;
  readonly name?: string | undefined;
  /** All of these. */
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Jobs of a page. */
  readonly limit?: number | undefined;
}

export type JobPage = WatchedPage<JobView>;

/** The jobs that fit a filter. */
export type JobList = Pages<JobView, JobPage>;

export function listJobs(transport: Transport, filter: JobFilter): JobList {
  const { state, name, labels, limit, signal } = filter;
  const query = { state, name, label: labelQuery(labels), limit };
  return pages(transport, { path: "/v1/jobs", query, signal });
}
