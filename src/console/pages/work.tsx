import type { WorkStateName, WorkVersionView, WorkView } from "../../client/client.ts";
import { visible } from "../../wire/visible.ts";
import { client } from "../account.ts";
import { useListing } from "../listing.ts";
import { useLoaded } from "../loading.ts";
import { Empty } from "../parts/empty.tsx";
import { asked, Choice, Filters, Text } from "../parts/filter.tsx";
import { Page, Section } from "../parts/page.tsx";
import { Rows } from "../parts/rows.tsx";
import { Status, type Tone } from "../parts/status.tsx";
import { When } from "../parts/when.tsx";
import { to } from "../place.ts";
import { counted, shortId } from "../words.ts";

const tones: Readonly<Record<WorkStateName, Tone>> = {
  pending: "wait",
  leased: "run",
  permitted: "run",
  retry_wait: "wait",
  cancel_pending: "run",
  reconciling: "run",
  suspended: "need",
  succeeded: "good",
  succeeded_after_cancel_requested: "good",
  failed: "bad",
  cancelled_before_effect: "off",
};
const states = Object.keys(tones) as WorkStateName[]; // its keys are all of them

export function WorkStatus({ item }: { readonly item: Pick<WorkView, "state" | "outcome_unknown"> }) {
  return (
    <>
      <Status state={item.state} tone={tones[item.state]} />
      {item.outcome_unknown ? <span class="tag need">outcome unknown</span> : null}
    </>
  );
}

export function Work() {
  const state = states.find((one) => one === asked("state"));
  const name = asked("name");
  const version = asked("version");
  const queue = asked("queue");
  const listing = useListing<WorkView>({
    key: JSON.stringify([state, name, version, queue]),
    page: (token, signal) => client.listWork({ state, name, version, queue, signal, limit: 100 }).page(token),
    read: ({ kind }) => (kind === "work" ? "look" : null),
  });
  const filtered = [state, name, version, queue].some((one) => one !== undefined);
  return (
    <Page title="Work">
      <Versions />
      <Section title="Items">
        <Filters>
          <Choice name="state" label="State" options={states} />
          <Text name="name" label="Name" hint="exactly" />
          <Text name="version" label="Version" hint="exactly" />
          <Text name="queue" label="Queue" hint="default" />
        </Filters>
        <Rows
          listing={listing}
          label="Work, newest first"
          noun="item"
          empty={
            filtered ? (
              <Empty title="No item fits this filter." />
            ) : (
              <Empty title="Nothing is submitted yet.">
                <p>
                  Work is an effect of a program's own code, submitted in its own transaction: see{" "}
                  <code>docs/work.md</code> and <code>examples/work-invoices</code>.
                </p>
              </Empty>
            )
          }
          columns={[
            {
              name: "Item",
              cell: (item) => (
                <a href={to("work", item.id)}>
                  {visible(item.name)} <code class="muted">{shortId(item.id)}</code>
                </a>
              ),
            },
            { name: "State", state: true, cell: (item) => <WorkStatus item={item} /> },
            { name: "Version", wide: true, cell: (item) => visible(item.version) },
            { name: "Queue", wide: true, cell: ({ queue }) => queue },
            {
              name: "Attempts",
              wide: true,
              number: true,
              cell: ({ attempts, attempts_max }) => `${attempts} of ${attempts_max}`,
            },
            { name: "Next", wide: true, number: true, cell: ({ next_due_at }) => <When at={next_due_at} /> },
            { name: "Accepted", number: true, cell: ({ accepted_at }) => <When at={accepted_at} /> },
          ]}
        />
      </Section>
    </Page>
  );
}

/** What runs it: a version that nobody runs leaves its items waiting. */
function Versions() {
  const { value } = useLoaded(
    "versions",
    (signal) => client.listWorkVersions({ signal }),
    ({ kind }) => kind === "work",
  );
  if (value === null || value.length === 0) return null;
  return (
    <Section title="Versions">
      <table class="plain">
        <thead>
          <tr>
            <th scope="col">Version</th>
            <th scope="col">Workers</th>
            <th scope="col" class="wide">
              Safety
            </th>
            <th scope="col" class="wide">
              Policy
            </th>
            <th scope="col" class="wide">
              Queue
            </th>
            <th scope="col" class="number">
              Registered
            </th>
          </tr>
        </thead>
        <tbody>
          {value.map((version) => (
            <tr key={version.number}>
              <td>
                {visible(version.name)} <span class="muted">{visible(version.version)}</span>
              </td>
              <td>
                <Workers version={version} />
              </td>
              <td class="wide">{version.safety.replaceAll("_", " ")}</td>
              <td class="wide">{version.policy}</td>
              <td class="wide">{version.queue}</td>
              <td class="number">
                <When at={version.registered_at} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}

function Workers({ version }: { readonly version: WorkVersionView }) {
  if (version.retired_at !== null) return <Status state="retired" tone="off" />;
  if (version.workers > 0) return <Status state="alive" word={counted(version.workers, "worker")} />;
  return (
    <Status
      state="none"
      word={version.waiting ? "none, items wait" : "none"}
      tone={version.waiting ? "need" : "off"}
    />
  );
}
