import type { ActivationView, ChangeEvent, RevisionView, SessionView } from "../../client/client.ts";
import type { LeaseView } from "../../wire/overview.ts";
import { visible } from "../../wire/visible.ts";
import { client, may } from "../account.ts";
import { recent } from "../live.ts";
import { useLoaded } from "../loading.ts";
import { ChangeLines } from "../parts/changes.tsx";
import { Composer } from "../parts/composer.tsx";
import { Empty, Loading } from "../parts/empty.tsx";
import { Fact, Facts, Held, Id, Labels } from "../parts/facts.tsx";
import { LeaseTable } from "../parts/leases.tsx";
import { Page, Section } from "../parts/page.tsx";
import { Problem } from "../parts/problem.tsx";
import { Status } from "../parts/status.tsx";
import { Turn } from "../parts/turn.tsx";
import { When } from "../parts/when.tsx";
import { to } from "../place.ts";
import { bytes } from "../words.ts";

interface Picture {
  readonly session: SessionView;
  /** The newest first, as far as they are shown. */
  readonly turns: readonly ActivationView[];
  readonly older: boolean;
  readonly revisions: readonly RevisionView[];
  readonly leases: readonly LeaseView[];
}

const turnsShown = 50;
const revisionsShown = 20;

async function pictureOf(id: string, signal: AbortSignal): Promise<Picture> {
  const newest = { order: "desc", limit: turnsShown, signal } as const;
  const [session, turns, revisions, leases] = await Promise.all([
    client.getSession(id, { signal }),
    client.listActivations(id, newest).page(),
    client.listRevisions(id, { limit: revisionsShown, signal }).page(),
    may("system:read") ? client.listLeases({ resource: id, signal }) : [],
  ]);
  return {
    session,
    turns: turns.items,
    older: turns.next_page_token !== null,
    revisions: revisions.items,
    leases,
  };
}

export function Session({ id }: { readonly id: string }) {
  const concerns = ({ root_id }: ChangeEvent) => root_id === id;
  // What its agent says meanwhile comes with the change itself.
  const reads = (change: ChangeEvent) => concerns(change) && change.operation !== "activation.event";
  const { value, error, reload } = useLoaded(id, (signal) => pictureOf(id, signal), reads);
  const above = { href: to("sessions"), name: "Sessions" };
  if (value === null) {
    return (
      <Page title="Session" above={above}>
        {error === null ? <Loading /> : <Problem error={error} again={reload} />}
      </Page>
    );
  }
  const { session, turns, older, revisions, leases } = value;
  const changes = recent.value.filter(concerns);
  return (
    <Page title={session.agent} above={above} beside={<Status state={session.state} />}>
      {error === null ? null : <Problem error={error} again={reload} />}
      <Held blocked={session.blocked} />
      <div class="split">
        <div>
          <Section title="Conversation">
            {older ? (
              <p class="muted small">
                The newest {turnsShown} turns. All of them: <code>holdfast session history {id}</code>
              </p>
            ) : null}
            {turns.length === 0 ? (
              <Empty title="Nothing was said yet.">
                <p>Send a message below: it is admitted once, and run in its order.</p>
              </Empty>
            ) : (
              <ol class="turns">
                {turns.toReversed().map((turn) => (
                  <Turn key={turn.id} turn={turn} events={changes} done={reload} />
                ))}
              </ol>
            )}
            <Composer session={session} done={reload} />
          </Section>
        </div>
        <div>
          <Section title="Session">
            <Facts>
              <Fact name="Id">
                <Id>{session.id}</Id>
              </Fact>
              <Fact name="Wanted">{session.desired_state}</Fact>
              <Fact name="Generation">
                {session.generation}, observed {session.observed_generation}
              </Fact>
              <Fact name="Template">
                {visible(session.agent)} version {session.agent_version}
              </Fact>
              <Fact name="Labels">
                <Labels labels={session.labels} />
              </Fact>
              <Fact name="Permissions">
                {session.permissions.length === 0 ? "none" : session.permissions.map(visible).join(", ")}
              </Fact>
              <Fact name="Begun">
                <When at={session.created_at} />
              </Fact>
              <Fact name="Changed">
                <When at={session.updated_at} />
              </Fact>
            </Facts>
          </Section>
          <Section title="Lease">
            {leases.length === 0 ? (
              <p class="muted">
                {may("system:read")
                  ? "None: nothing of it needs attention."
                  : "The token lacks the scope system:read."}
              </p>
            ) : (
              <LeaseTable leases={leases} />
            )}
          </Section>
          <Revisions revisions={revisions} head={session.head_revision} />
          <Section title="Events">
            <ChangeLines changes={changes} />
          </Section>
        </div>
      </div>
    </Page>
  );
}

function Revisions({
  revisions,
  head,
}: {
  readonly revisions: readonly RevisionView[];
  readonly head: number;
}) {
  return (
    <Section title="Revisions">
      {revisions.length === 0 ? (
        <p class="muted">Nothing is committed yet.</p>
      ) : (
        <ol class="revisions">
          {revisions.map((revision) => (
            <li key={revision.revision}>
              <span class="number">{revision.revision}</span>
              {revision.revision === head ? <span class="tag">head</span> : null}
              <span class="grow" />
              <span class="muted">
                {revision.removed_at !== null
                  ? "removed"
                  : revision.bundle === null
                    ? "keeps nothing"
                    : bytes(revision.bundle.bytes)}
              </span>
              <When at={revision.committed_at} />
              {revision.bundle === null ? null : <Id>{revision.bundle.sha256}</Id>}
            </li>
          ))}
        </ol>
      )}
    </Section>
  );
}
