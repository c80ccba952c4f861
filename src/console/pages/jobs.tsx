import type { JobView } from "../../client/client.ts";
import { visible } from "../../wire/visible.ts";
import { client } from "../account.ts";
import { useListing } from "../listing.ts";
import { Empty } from "../parts/empty.tsx";
import { Labels } from "../parts/facts.tsx";
import { asked, askedLabels, Choice, Filters, Text } from "../parts/filter.tsx";
import { Page } from "../parts/page.tsx";
import { Rows } from "../parts/rows.tsx";
import { Status } from "../parts/status.tsx";
import { Took, When } from "../parts/when.tsx";
import { to } from "../place.ts";
import { shortId } from "../words.ts";

const states = ["queued", "running", "succeeded", "failed", "cancelled"] as const;

export const jobWord = (job: JobView): string | undefined =>
  job.cancel_requested_at !== null && job.finished_at === null ? "being cancelled" : undefined;

export function Jobs() {
  const state = states.find((one) => one === asked("state"));
  const name = asked("name");
  const labels = askedLabels();
  const listing = useListing<JobView>({
    key: JSON.stringify([state, name, labels]),
    page: (token, signal) => client.listJobs({ state, name, labels, signal, limit: 100 }).page(token),
    read: ({ kind, body }) => (kind === "job" ? (body as JobView) : null),
    fits: (job) =>
      (state === undefined || job.state === state) &&
      (name === undefined || job.name === name) &&
      Object.entries(labels).every(([key, value]) => job.labels[key] === value),
  });
  const filtered = state !== undefined || name !== undefined || Object.keys(labels).length > 0;
  return (
    <Page title="Jobs">
      <Filters>
        <Choice name="state" label="State" options={states} />
        <Text name="name" label="Name" hint="exactly" />
        <Text name="label" label="Labels" hint="team=web, branch=main" />
      </Filters>
      <Rows
        listing={listing}
        label="Jobs, newest first"
        noun="job"
        empty={
          filtered ? (
            <Empty title="No job fits this filter." />
          ) : (
            <Empty title="There are no jobs yet.">
              <p>
                Submit one: <code>holdfast run job.yaml</code>. It shows up here at once.
              </p>
            </Empty>
          )
        }
        columns={[
          {
            name: "Job",
            cell: (job) => (
              <a href={to("jobs", job.id)}>
                {visible(job.name)} <code class="muted">{shortId(job.id)}</code>
              </a>
            ),
          },
          { name: "State", state: true, cell: (job) => <Status state={job.state} {...wordOf(job)} /> },
          { name: "Labels", wide: true, cell: (job) => <Labels labels={job.labels} /> },
          { name: "Attempts", wide: true, number: true, cell: (job) => job.attempts },
          { name: "Priority", wide: true, number: true, cell: (job) => job.priority },
          {
            name: "Took",
            wide: true,
            number: true,
            cell: (job) =>
              job.state === "queued" ? "–" : <Took from={job.queued_at} until={job.finished_at} />,
          },
          { name: "Submitted", number: true, cell: (job) => <When at={job.created_at} /> },
        ]}
      />
    </Page>
  );
}

const wordOf = (job: JobView) => {
  const word = jobWord(job);
  return word === undefined ? {} : { word };
};
