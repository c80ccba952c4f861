/**
 * What a worker counts of itself. Labels are the names of works that its program defined, outcomes and reasons: no
 * tenant, no item, no payload (W12). `docs/work.md` documents each, and a test holds the two to each other.
 */
export const workerMetrics = {
  /** What has become of an attempt's word, once for each: `finished`, of a failure `retry`, `failed` or `suspended`,
   * `settled` when it counted and only the answer was lost, `quarantined` when it came late, `dropped` when it was not
   * recorded. */
  holdfast_work_attempts_total: ["work", "outcome"],
  /** Something was not given or not taken. */
  holdfast_work_refusals_total: ["work", "boundary", "reason"],
} as const satisfies Readonly<Record<string, readonly string[]>>;

/** Where the database, or the clock of a lease, said no. */
export type Boundary = "claim" | "permit" | "renewal" | "completion";

export type WorkMetric =
  | { readonly name: "holdfast_work_attempts_total"; readonly work: string; readonly outcome: string }
  | {
      readonly name: "holdfast_work_refusals_total";
      readonly work: string;
      readonly boundary: Boundary;
      readonly reason: string;
    };

/** Counters of one process, for a registry or to be read as Prometheus's text. */
export interface WorkCounters {
  /** For `createWorker({ onMetric })`. */
  readonly onMetric: (metric: WorkMetric) => void;
  readonly values: () => readonly { readonly metric: WorkMetric; readonly count: number }[];
  /** In Prometheus's text format. */
  readonly text: () => string;
}

/** Distinct labels are bounded by the works that a program has; more than this is a mistake, and is not counted. */
const seriesMax = 10_000;

export function workCounters(): WorkCounters {
  const series = new Map<string, { readonly metric: WorkMetric; count: number }>();
  return {
    onMetric(metric) {
      const key = lineOf(metric);
      const one = series.get(key);
      if (one !== undefined) one.count += 1;
      else if (series.size < seriesMax) series.set(key, { metric, count: 1 });
    },
    values: () => [...series.values()],
    text() {
      const names = Object.keys(workerMetrics);
      return names
        .flatMap((name) => [
          `# TYPE ${name} counter`,
          ...[...series]
            .filter(([, { metric }]) => metric.name === name)
            .map(([key, { count }]) => `${key} ${count}`),
        ])
        .map((line) => `${line}\n`)
        .join("");
    },
  };
}

/** A series' name and labels, as the text format writes them. A work's name needs no escapes. */
function lineOf(metric: WorkMetric): string {
  switch (metric.name) {
    case "holdfast_work_attempts_total":
      return `${metric.name}{work="${metric.work}",outcome="${metric.outcome}"}`;
    case "holdfast_work_refusals_total":
      return `${metric.name}{work="${metric.work}",boundary="${metric.boundary}",reason="${metric.reason}"}`;
  }
}
