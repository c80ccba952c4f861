import { useState } from "preact/hooks";
import type {
  ArtifactView,
  AttemptPlanView,
  AttemptView,
  ChangeEvent,
  JobView,
} from "../../client/client.ts";
import { visible } from "../../wire/visible.ts";
import { client } from "../account.ts";
import { recent } from "../live.ts";
import { useLoaded } from "../loading.ts";
import { Action } from "../parts/action.tsx";
import { Attempt } from "../parts/attempt.tsx";
import { ChangeLines } from "../parts/changes.tsx";
import { Empty, Loading } from "../parts/empty.tsx";
import { Fact, Facts, Held, Id, Labels } from "../parts/facts.tsx";
import { LogView } from "../parts/log-view.tsx";
import { Page, Section } from "../parts/page.tsx";
import { Problem } from "../parts/problem.tsx";
import { Save } from "../parts/save.tsx";
import { Status } from "../parts/status.tsx";
import { Took, When } from "../parts/when.tsx";
import { to } from "../place.ts";
import { bytes, lasting } from "../words.ts";
import { jobWord } from "./jobs.tsx";

interface Picture {
  readonly job: JobView;
  readonly attempts: readonly AttemptView[];
  readonly plans: readonly AttemptPlanView[];
  readonly artifacts: readonly ArtifactView[];
}

async function pictureOf(id: string, signal: AbortSignal): Promise<Picture> {
  const options = { signal };
  const [job, attempts, artifacts] = await Promise.all([
    client.getJob(id, options),
    client.listAttempts(id, options),
    client.listArtifacts(id, options),
  ]);
  const plans = await Promise.all(attempts.map(({ attempt }) => client.getAttemptPlan(id, attempt, options)));
  return { job, attempts, plans, artifacts };
}

export function Job({ id }: { readonly id: string }) {
  const concerns = ({ root_id }: ChangeEvent) => root_id === id;
  const { value, error, reload } = useLoaded(id, (signal) => pictureOf(id, signal), concerns);
  const above = { href: to("jobs"), name: "Jobs" };
  if (value === null) {
    return (
      <Page title="Job" above={above}>
        {error === null ? <Loading /> : <Problem error={error} again={reload} />}
      </Page>
    );
  }
  const { job, attempts, plans, artifacts } = value;
  const word = jobWord(job);
  return (
    <Page
      title={job.name}
      above={above}
      beside={
        <>
          <Status state={job.state} {...(word === undefined ? {} : { word })} />
          <span class="grow" />
          {job.finished_at === null && job.cancel_requested_at === null ? (
            <Cancel job={job} done={reload} />
          ) : null}
        </>
      }
    >
      {error === null ? null : <Problem error={error} again={reload} />}
      <Facts>
        <Fact name="Submitted">
          <When at={job.created_at} />
        </Fact>
        <Fact name="Took">
          <Took from={job.queued_at} until={job.finished_at} />
        </Fact>
        <Fact name="Priority">{job.priority}</Fact>
        <Fact name="Labels">
          <Labels labels={job.labels} />
        </Fact>
        <Fact name="Id">
          <Id>{job.id}</Id>
        </Fact>
        <Fact name="Version">{job.resource_version}</Fact>
        {job.cancel_requested_at === null ? null : (
          <Fact name="Cancelled">
            <When at={job.cancel_requested_at} />: {visible(job.cancel_reason ?? "")}
          </Fact>
        )}
      </Facts>
      {job.failure === null ? null : (
        <p class="note bad">
          {visible(job.failure.message)} <code>{job.failure.code}</code>
        </p>
      )}
      <Held blocked={job.blocked} />
      <Attempts attempts={attempts} job={job} />
      {attempts.length === 0 ? null : <Output job={job} attempts={attempts} />}
      <Artifacts artifacts={artifacts} job={job} />
      {plans.length === 0 ? null : <Plans plans={plans} />}
      <Section title="Events">
        <p class="muted small">
          What happened since this page was opened. Who asked for it is under{" "}
          <a href={`${to("commands")}?target=${encodeURIComponent(`/v1/jobs/${id}`)}`}>commands</a>.
        </p>
        <ChangeLines changes={recent.value.filter(concerns)} />
      </Section>
    </Page>
  );
}

function Cancel({ job, done }: { readonly job: JobView; readonly done: () => void }) {
  return (
    <Action
      label="Cancel job"
      scope="jobs:write"
      title={`Cancel ${visible(job.name)}?`}
      confirm="Cancel the job"
      danger
      field={{ label: "Reason (stands in the record)", required: false }}
      work={(reason) => client.cancelJob(job.id, reason === "" ? {} : { reason })}
      done={done}
    >
      <p>
        {job.state === "queued"
          ? "It has not started: it ends at once."
          : "What runs is stopped, and it has ended when that is proven."}{" "}
        This is never taken back.
      </p>
    </Action>
  );
}

function Attempts({ attempts, job }: Pick<Picture, "attempts" | "job">) {
  if (attempts.length === 0) {
    return (
      <Section title="Attempts">
        <Empty
          title={
            job.finished_at === null
              ? "It waits for a slot: no attempt has started yet."
              : "It ended before an attempt started."
          }
        />
      </Section>
    );
  }
  return (
    <>
      {attempts.toReversed().map((attempt) => (
        <Section
          key={attempt.id}
          title={`Attempt ${attempt.attempt}`}
          beside={<Status state={attempt.outcome ?? "running"} />}
        >
          <Attempt attempt={attempt} />
        </Section>
      ))}
    </>
  );
}

function Output({ job, attempts }: Pick<Picture, "attempts" | "job">) {
  const [chosen, choose] = useState("");
  const phases = [...new Set(attempts.flatMap(({ phases }) => phases.map(({ name }) => name)))];
  const open = attempts.some(({ state }) => state === "active") || job.finished_at === null;
  return (
    <Section
      title="Output"
      beside={
        <label class="beside">
          Phase{" "}
          <select value={chosen} onChange={(event) => choose(event.currentTarget.value)}>
            <option value="">all</option>
            {phases.map((name) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
      }
    >
      <LogView job={job.id} phase={chosen === "" ? undefined : chosen} open={open} />
    </Section>
  );
}

function Artifacts({ artifacts, job }: Pick<Picture, "artifacts" | "job">) {
  if (artifacts.length === 0) {
    if (job.finished_at !== null) return null;
    return (
      <Section title="Artifact">
        <Empty title="Nothing is published yet: that is its last step." />
      </Section>
    );
  }
  return (
    <Section title="Artifact">
      {artifacts.map((artifact) => (
        <article key={artifact.name}>
          <Facts>
            <Fact name="Name">{visible(artifact.name)}</Fact>
            <Fact name="Size">{bytes(artifact.bytes)}</Fact>
            <Fact name="SHA-256">
              <Id>{artifact.sha256}</Id>
            </Fact>
            <Fact name="Published">
              <When at={artifact.published_at} />
            </Fact>
            <Fact name={artifact.removed_at === null ? "Kept until" : "Removed"}>
              <When at={artifact.removed_at ?? artifact.retain_until} />
            </Fact>
            {artifact.removed_at === null ? (
              <Fact name="Bytes">
                <Save artifact={artifact} />{" "}
                <code>
                  holdfast download {artifact.job_id} {visible(artifact.name)}
                </code>
              </Fact>
            ) : null}
          </Facts>
          <details>
            <summary>Files ({artifact.files.length})</summary>
            <ul class="files">
              {artifact.files.map((file) => (
                <li key={file.name}>
                  <span>{visible(file.name)}</span>
                  <span class="number">{bytes(file.bytes)}</span>
                  <Id>{file.sha256}</Id>
                </li>
              ))}
            </ul>
          </details>
        </article>
      ))}
    </Section>
  );
}

function Plans({ plans }: Pick<Picture, "plans">) {
  return (
    <Section title="Plan">
      {plans.map(({ attempt, plan, plan_digest }) => (
        <details key={attempt}>
          <summary>What attempt {attempt} was going to do</summary>
          <Facts>
            <Fact name="Digest">
              <Id>{plan_digest}</Id>
            </Fact>
            <Fact name="Runtime">{plan.runtime}</Fact>
            <Fact name="At most">{lasting(Number(plan.deadline_us) / 1_000)}</Fact>
            {Object.entries(plan.sources).map(([name, { repository, ref }]) => (
              <Fact key={name} name={`Source ${name}`}>
                {visible(repository)} <code>{visible(ref)}</code>
              </Fact>
            ))}
          </Facts>
          <ol class="plan">
            {plan.phases.map(({ name, kind, image, command }) => (
              <li key={name}>
                <strong>{visible(name)}</strong> <span class="muted">{kind}</span>{" "}
                {image === null ? null : <code>{visible(image)}</code>}
                <pre tabIndex={0}>
                  {command.map((word) => word.split("\n").map(visible).join("\n")).join(" ")}
                </pre>
              </li>
            ))}
          </ol>
        </details>
      ))}
    </Section>
  );
}
