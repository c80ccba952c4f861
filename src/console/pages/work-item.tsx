import { useState } from "preact/hooks";
import type { WorkDetail } from "../../client/client.ts";
import { visible } from "../../wire/visible.ts";
import { client, may } from "../account.ts";
import { useLoaded } from "../loading.ts";
import { Loading } from "../parts/empty.tsx";
import { Fact, Facts, Id, Json } from "../parts/facts.tsx";
import { Page, Section } from "../parts/page.tsx";
import { Problem } from "../parts/problem.tsx";
import { When } from "../parts/when.tsx";
import { WorkActions } from "../parts/work-actions.tsx";
import { WorkAttempts } from "../parts/work-attempts.tsx";
import { to } from "../place.ts";
import { lasting } from "../words.ts";
import { WorkStatus } from "./work.tsx";

export function WorkItem({ id }: { readonly id: string }) {
  const { value, error, reload } = useLoaded(
    id,
    (signal) => client.getWork(id, { signal }),
    // Changes of Work tell of many items at once.
    ({ kind }) => kind === "work",
  );
  const above = { href: to("work"), name: "Work" };
  if (value === null) {
    return (
      <Page title="Work item" above={above}>
        {error === null ? <Loading /> : <Problem error={error} again={reload} />}
      </Page>
    );
  }
  return (
    <Page title={value.name} above={above} beside={<WorkStatus item={value} />}>
      {error === null ? null : <Problem error={error} again={reload} />}
      <WorkActions item={value} done={reload} />
      <Identity item={value} />
      {value.failure === null ? null : (
        <p class="note bad">
          {visible(value.failure.message)} <code>{value.failure.code}</code>
        </p>
      )}
      <WorkAttempts item={value} />
      <Closures item={value} />
      <Quarantined item={value} />
      <Payload item={value} />
    </Page>
  );
}

const us = (microseconds: string): string => lasting(Number(microseconds) / 1_000);

function Identity({ item }: { readonly item: WorkDetail }) {
  return (
    <Facts>
      <Fact name="Id">
        <Id>{item.id}</Id>
      </Fact>
      <Fact name="Version">{visible(item.version)}</Fact>
      <Fact name="Safety">{item.safety.replaceAll("_", " ")}</Fact>
      <Fact name="Policy">{item.policy}</Fact>
      <Fact name="Queue">
        {item.queue}, priority {item.priority}
      </Fact>
      <Fact name="Attempts">
        {item.attempts} of {item.attempts_max}
      </Fact>
      <Fact name="Accepted">
        <When at={item.accepted_at} />
      </Fact>
      <Fact name="Eligible again">
        <When at={item.next_due_at} />
      </Fact>
      <Fact name="No attempt after">
        <When at={item.cutoff_at} />
      </Fact>
      {item.deadline === null ? null : (
        <Fact name="Deadline">
          <When at={item.deadline} />
        </Fact>
      )}
      <Fact name="Finished">
        <When at={item.finished_at} />
      </Fact>
      {item.plan === null ? (
        <Fact name="Retry">
          {us(item.retry.initial_us)} to {us(item.retry.longest_us)}
        </Fact>
      ) : null}
      {item.key === null ? null : (
        <Fact name="Key">
          <code>{visible(item.key)}</code>
        </Fact>
      )}
      {item.provider_key === null ? null : (
        <Fact name="Provider key">
          <Id>{item.provider_key}</Id>
        </Fact>
      )}
      {item.circuit_key === null ? null : (
        <Fact name="Circuit">
          <code>{visible(item.circuit_key)}</code>
          {item.circuit === null ? null : `, ${item.circuit.failures} failures`}
          {item.circuit?.opened_at == null ? null : ", open"}
        </Fact>
      )}
      <Fact name="Fingerprint">
        <Id>{item.fingerprint}</Id>
      </Fact>
      {item.lease === null ? null : (
        <Fact name="Lease">
          epoch {item.lease.epoch}, {item.lease.admitted_at === null ? "no permit yet" : "permitted"}, until{" "}
          <When at={item.lease.until} />, held by <Id>{item.lease.holder}</Id>
        </Fact>
      )}
    </Facts>
  );
}

/** Why no attempt begins any more, or for now: in the order in which it was decided. */
function Closures({ item }: { readonly item: WorkDetail }) {
  const { admission_closed: closed, cancel, suspensions, deadline_reached_at } = item;
  if (closed === null && cancel === null && suspensions.length === 0 && deadline_reached_at === null) {
    return null;
  }
  return (
    <Section title="Closures">
      <Facts>
        {closed === null ? null : (
          <Fact name="Admission closed">
            <When at={closed.at} />: {visible(closed.reason.replaceAll("_", " "))}
          </Fact>
        )}
        {deadline_reached_at === null ? null : (
          <Fact name="Deadline reached">
            <When at={deadline_reached_at} />
          </Fact>
        )}
        {cancel === null ? null : (
          <Fact name="Cancellation">
            <When at={cancel.at} /> by {visible(cancel.by)}: {visible(cancel.reason)}
          </Fact>
        )}
        {suspensions.map(({ since, reason, by, ended_at, ended_by, ending }) => (
          <Fact key={since} name="Suspended">
            <When at={since} />: {visible(reason).replaceAll("_", " ")}
            {by === null ? null : ` by ${visible(by)}`}
            {ended_at === null ? null : (
              <>
                {", ended "}
                <When at={ended_at} /> {visible(ending?.replaceAll("_", " ") ?? "")}
                {ended_by === null ? null : ` by ${visible(ended_by)}`}
              </>
            )}
          </Fact>
        ))}
      </Facts>
    </Section>
  );
}

function Quarantined({ item }: { readonly item: WorkDetail }) {
  if (item.observations.length === 0) return null;
  return (
    <Section title="Quarantined observations">
      <p class="muted small">Results that came too late. None of them is a success.</p>
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">Attempt</th>
            <th scope="col">Outcome</th>
            <th scope="col">Why not taken</th>
            <th scope="col" class="wide number">
              Epoch
            </th>
            <th scope="col" class="number">
              When
            </th>
          </tr>
        </thead>
        <tbody>
          {item.observations.map((one) => (
            <tr key={one.id}>
              <td>{one.attempt}</td>
              <td>{visible(one.outcome)}</td>
              <td>
                {visible(one.reason.replaceAll("_", " "))}
                {one.failure === null ? null : `: ${visible(one.failure.message)}`}
              </td>
              <td class="wide number">{one.epoch}</td>
              <td class="number">
                <When at={one.at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}

/** Only for those who may see it, and only when they ask. */
function Payload({ item }: { readonly item: WorkDetail }) {
  const [open, setOpen] = useState(false);
  return (
    <Section title="Payload">
      {may("work:payload") ? (
        <details onToggle={(event) => setOpen(event.currentTarget.open)}>
          <summary>Show what was submitted, and what it gave</summary>
          {open ? <Shown id={item.id} version={item.resource_version} /> : null}
        </details>
      ) : (
        <p class="muted">The token lacks the scope work:payload.</p>
      )}
    </Section>
  );
}

function Shown({ id, version }: { readonly id: string; readonly version: string }) {
  const { value, error, reload } = useLoaded(`${id} ${version}`, (signal) =>
    client.getWorkPayload(id, { signal }),
  );
  if (value === null) return error === null ? <Loading /> : <Problem error={error} again={reload} />;
  return <Json value={value} />;
}
