import { visible } from "../../wire/visible.ts";
import { client } from "../account.ts";
import { useLoaded } from "../loading.ts";
import { Action } from "../parts/action.tsx";
import { Loading } from "../parts/empty.tsx";
import { Fact, Facts, Id, Json } from "../parts/facts.tsx";
import { Page, Section } from "../parts/page.tsx";
import { Problem } from "../parts/problem.tsx";
import { Status } from "../parts/status.tsx";
import { When } from "../parts/when.tsx";
import { to } from "../place.ts";

export function Delivery({ id }: { readonly id: string }) {
  const { value, error, reload } = useLoaded(
    id,
    (signal) => client.getDelivery(id, { signal }),
    (change) => change.id === id,
  );
  const above = { href: to("deliveries"), name: "Deliveries" };
  if (value === null) {
    return (
      <Page title="Delivery" above={above}>
        {error === null ? <Loading /> : <Problem error={error} again={reload} />}
      </Page>
    );
  }
  return (
    <Page
      title={`To ${value.destination}`}
      above={above}
      beside={
        <>
          <Status state={value.state} />
          <span class="grow" />
          {value.state === "dead" ? (
            <Action
              label="Deliver again"
              scope="deliveries:write"
              title="Deliver it again?"
              confirm="Deliver it"
              work={() => client.redeliver(id)}
              done={reload}
            >
              <p>It is tried from the beginning, under the same id: receivers know duplicates by it.</p>
            </Action>
          ) : null}
        </>
      }
    >
      <Facts>
        <Fact name="Id">
          <Id>{value.id}</Id>
        </Fact>
        <Fact name="Session">
          <a href={to("sessions", value.session_id)}>
            <Id>{value.session_id}</Id>
          </a>
        </Fact>
        <Fact name="Place in its line">{value.ordinal}</Fact>
        <Fact name="Tells of">
          {value.source.kind} <Id>{value.source.id}</Id>
        </Fact>
        <Fact name="Tries">{value.tries}</Fact>
        <Fact name="Last tried">
          <When at={value.tried_at} />
        </Fact>
        <Fact name="Next try">
          <When at={value.next_try_at} />
        </Fact>
        <Fact name="Last answer">{value.last_status ?? "–"}</Fact>
        <Fact name="Made">
          <When at={value.created_at} />
        </Fact>
        <Fact name="Settled">
          <When at={value.settled_at} />
        </Fact>
      </Facts>
      {value.last_error === null ? null : <p class="note bad">{visible(value.last_error)}</p>}
      <Section title="What it tells">
        <Json value={value.payload} />
      </Section>
    </Page>
  );
}
