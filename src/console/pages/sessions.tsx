import type { SessionView } from "../../client/client.ts";
import { visible } from "../../wire/visible.ts";
import { client } from "../account.ts";
import { useListing } from "../listing.ts";
import { Empty } from "../parts/empty.tsx";
import { Labels } from "../parts/facts.tsx";
import { asked, askedLabels, Choice, Filters, Text } from "../parts/filter.tsx";
import { Page } from "../parts/page.tsx";
import { Rows } from "../parts/rows.tsx";
import { Status } from "../parts/status.tsx";
import { When } from "../parts/when.tsx";
import { to } from "../place.ts";
import { shortId } from "../words.ts";

const states = ["pending", "idle", "running", "waiting", "suspended", "closed", "deleted"] as const;

export function Sessions() {
  const state = states.find((one) => one === asked("state"));
  const agent = asked("agent");
  const labels = askedLabels();
  const listing = useListing<SessionView>({
    key: JSON.stringify([state, agent, labels]),
    page: (token, signal) => client.listSessions({ state, agent, labels, signal, limit: 100 }).page(token),
    read: ({ kind, body }) =>
      kind === "session" && isSession(body) ? body : kind === "session" ? "look" : null,
    fits: (session) =>
      (state === undefined || session.state === state) &&
      (agent === undefined || session.agent === agent) &&
      Object.entries(labels).every(([key, value]) => session.labels[key] === value),
  });
  const filtered = state !== undefined || agent !== undefined || Object.keys(labels).length > 0;
  return (
    <Page title="Sessions">
      <Filters>
        <Choice name="state" label="State" options={states} />
        <Text name="agent" label="Agent" hint="exactly" />
        <Text name="label" label="Labels" hint="team=web" />
      </Filters>
      <Rows
        listing={listing}
        label="Sessions, newest first"
        noun="session"
        empty={
          filtered ? (
            <Empty title="No session fits this filter." />
          ) : (
            <Empty title="There are no sessions yet.">
              <p>
                Make an agent with <code>holdfast agent apply agent.yaml</code>, then begin a session:{" "}
                <code>holdfast session start NAME</code>.
              </p>
            </Empty>
          )
        }
        columns={[
          {
            name: "Session",
            cell: (session) => (
              <a href={to("sessions", session.id)}>
                {visible(session.agent)} <code class="muted">{shortId(session.id)}</code>
              </a>
            ),
          },
          { name: "State", state: true, cell: ({ state }) => <Status state={state} /> },
          { name: "Wanted", wide: true, cell: ({ desired_state }) => desired_state },
          { name: "Labels", wide: true, cell: ({ labels }) => <Labels labels={labels} /> },
          { name: "Revision", wide: true, number: true, cell: ({ head_revision }) => head_revision },
          { name: "Changed", number: true, cell: ({ updated_at }) => <When at={updated_at} /> },
        ]}
      />
    </Page>
  );
}

export function isSession(body: unknown): body is SessionView {
  return typeof body === "object" && body !== null && "agent" in body && "desired_state" in body;
}
