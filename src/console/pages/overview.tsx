import type { ComponentChildren } from "preact";
import type { JobView } from "../../client/client.ts";
import type { OverviewView } from "../../wire/overview.ts";
import { overviewLimits } from "../../wire/overview-limits.ts";
import { visible } from "../../wire/visible.ts";
import { client } from "../account.ts";
import { useEvery } from "../every.ts";
import { useLoaded } from "../loading.ts";
import { Empty, Loading } from "../parts/empty.tsx";
import { LeaseTable } from "../parts/leases.tsx";
import { Page, Section } from "../parts/page.tsx";
import { Problem } from "../parts/problem.tsx";
import { Shape, Status, type Tone } from "../parts/status.tsx";
import { When } from "../parts/when.tsx";
import { to } from "../place.ts";
import { count } from "../words.ts";
import { jobWord } from "./jobs.tsx";

const renewMs = 10_000;
/** Every change may concern it. */
const restMs = 1_000;
const jobsShown = 8;

export function Overview() {
  const { value, error, reload } = useLoaded(
    "overview",
    async (signal) => {
      const [overview, jobs] = await Promise.all([
        client.getOverview({ signal }),
        client.listJobs({ limit: jobsShown, signal }).page(),
      ]);
      return { overview, jobs: jobs.items };
    },
    () => true,
    restMs,
  );
  // Leases and loops come and go without a change.
  useEvery(renewMs, reload);
  if (value === null) {
    return (
      <Page title="Overview">{error === null ? <Loading /> : <Problem error={error} again={reload} />}</Page>
    );
  }
  const { overview, jobs } = value;
  return (
    <Page title="Overview">
      {error === null ? null : <Problem error={error} again={reload} />}
      <Figures overview={overview} />
      <div class="split even">
        <RecentJobs jobs={jobs} />
        <div>
          <Section title="Slots">
            <Pools overview={overview} />
          </Section>
          <Section title="Loops of this gateway">
            <ul class="loops">
              {overview.loops.map(({ name, progressing, detail }) => (
                <li key={name}>
                  <Status
                    state={progressing ? "live" : "stuck"}
                    word={progressing ? "gets on" : "stuck"}
                    tone={progressing ? "good" : "bad"}
                  />
                  <span>{name}</span>
                  <span class="grow" />
                  <span class="muted">{visible(detail)}</span>
                </li>
              ))}
            </ul>
          </Section>
          <Section title="Oldest lease">
            {overview.leases.oldest === null ? (
              <p class="muted">There is none: nothing needs attention.</p>
            ) : (
              <LeaseTable leases={[overview.leases.oldest]} />
            )}
          </Section>
        </div>
      </div>
    </Page>
  );
}

function Figures({ overview }: { readonly overview: OverviewView }) {
  const { jobs, activations, deliveries, leases, unproven } = overview;
  const work = overview.work.reduce((sum, { count }) => sum + count, 0);
  return (
    <ul class="figures">
      <Figure name="Running jobs" value={jobs.running} href={`${to("jobs")}?state=running`} tone="run" />
      <Figure name="Waiting jobs" value={jobs.waiting} href={`${to("jobs")}?state=queued`} tone="wait">
        {jobs.oldest_waiting_at === null ? null : (
          <>
            the first <When at={jobs.oldest_waiting_at} />
          </>
        )}
      </Figure>
      <Figure name="Failed today" value={jobs.recent.failed} href={`${to("jobs")}?state=failed`} tone="bad">
        {count(jobs.recent.succeeded)} succeeded
      </Figure>
      <Figure
        name="Turns at work"
        value={activations.running + activations.queued}
        href={`${to("sessions")}?state=running`}
        tone="run"
      />
      <Figure
        name="Turns that need you"
        value={activations.waiting}
        href={`${to("sessions")}?state=waiting`}
        tone="need"
      />
      <Figure name="Work under way" value={work} href={to("work")} tone="run" />
      <Figure name="Dead letters" value={deliveries.dead} href={`${to("deliveries")}?state=dead`} tone="bad">
        {count(deliveries.pending)} on their way
      </Figure>
      <Figure name="Leases held" value={leases.held} more={leases.partial} tone="run">
        {count(leases.due)}
        {leases.partial ? "+" : ""} due
      </Figure>
      {unproven === 0 ? null : <Figure name="Stops unproven" value={unproven} tone="bad" />}
    </ul>
  );
}

function Figure({
  name,
  value,
  more = value >= overviewLimits.countMax,
  href,
  tone,
  children,
}: {
  readonly name: string;
  readonly value: number;
  /** Whether there may be more than were counted. */
  readonly more?: boolean;
  readonly href?: string;
  readonly tone: Tone;
  readonly children?: ComponentChildren;
}) {
  const text = more ? `${count(value)}+` : count(value);
  const inside = (
    <>
      <span class="figure-name">{name}</span>
      <span class="figure-value">
        {value === 0 ? null : <Shape tone={tone} />}
        {text}
      </span>
      <span class="figure-more">{children ?? "\u00a0"}</span>
    </>
  );
  return (
    <li class={`figure ${value === 0 ? "" : tone}`}>
      {href === undefined ? <div>{inside}</div> : <a href={href}>{inside}</a>}
    </li>
  );
}

function RecentJobs({ jobs }: { readonly jobs: readonly JobView[] }) {
  return (
    <Section title="Newest jobs" beside={<a href={to("jobs")}>All jobs</a>}>
      {jobs.length === 0 ? (
        <Empty title="There are no jobs yet.">
          <p>
            Submit one: <code>holdfast run job.yaml</code>
          </p>
        </Empty>
      ) : (
        <ul class="brief">
          {jobs.map((job) => (
            <li key={job.id}>
              <a href={to("jobs", job.id)}>{visible(job.name)}</a>
              <span class="grow" />
              <Status state={job.state} word={jobWord(job) ?? job.state} />
              <When at={job.created_at} />
            </li>
          ))}
        </ul>
      )}
    </Section>
  );
}

function Pools({ overview }: { readonly overview: OverviewView }) {
  return (
    <ul class="pools">
      {overview.pools.map(({ pool, slots, running }) => (
        <li key={pool}>
          <span>{visible(pool)}</span>
          <span class="grow" />
          <meter min={0} max={slots} value={running} aria-label={`${running} of ${slots} slots`} />
          <span class="number">
            {running} of {slots}
          </span>
        </li>
      ))}
    </ul>
  );
}
