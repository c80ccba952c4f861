import type { DeliveryView } from "../../client/client.ts";
import { visible } from "../../wire/visible.ts";
import { client } from "../account.ts";
import { useListing } from "../listing.ts";
import { Empty } from "../parts/empty.tsx";
import { asked, Choice, Filters, Text } from "../parts/filter.tsx";
import { Page } from "../parts/page.tsx";
import { Rows } from "../parts/rows.tsx";
import { Status } from "../parts/status.tsx";
import { When } from "../parts/when.tsx";
import { to } from "../place.ts";
import { shortId } from "../words.ts";

const states = ["pending", "delivered", "dead"] as const;

export function Deliveries() {
  const state = states.find((one) => one === asked("state"));
  const session = asked("session");
  const destination = asked("destination");
  const listing = useListing<DeliveryView>({
    key: JSON.stringify([state, session, destination]),
    page: (token, signal) =>
      client.listDeliveries({ state, session, destination, signal, limit: 100 }).page(token),
    read: ({ kind }) => (kind === "delivery" ? "look" : null),
  });
  return (
    <Page title="Deliveries">
      <Filters>
        <Choice name="state" label="State" options={states} />
        <Text name="destination" label="Destination" hint="inbox" />
        <Text name="session" label="Session" hint="its whole id" />
      </Filters>
      <Rows
        listing={listing}
        label="Deliveries, newest first"
        noun="delivery"
        empty={
          state === "dead" ? (
            <Empty title="No delivery is dead.">
              <p>Those that were tried as often as allowed would wait here to be delivered again.</p>
            </Empty>
          ) : (
            <Empty title="There is nothing to deliver.">
              <p>
                What sessions reply goes to the destinations of their agent, or waits in the inbox. See{" "}
                <a href={to("sessions")}>sessions</a>.
              </p>
            </Empty>
          )
        }
        columns={[
          {
            name: "Delivery",
            cell: (delivery) => (
              <a href={to("deliveries", delivery.id)}>
                {visible(delivery.destination)} <code class="muted">{shortId(delivery.id)}</code>
              </a>
            ),
          },
          { name: "State", state: true, cell: ({ state }) => <Status state={state} /> },
          {
            name: "Session",
            wide: true,
            cell: ({ session_id }) => (
              <a href={to("sessions", session_id)}>
                <code>{shortId(session_id)}</code>
              </a>
            ),
          },
          { name: "Tries", wide: true, number: true, cell: ({ tries }) => tries },
          {
            name: "Last answer",
            wide: true,
            cell: ({ last_error, last_status }) => (
              <span class="cut" title={last_error === null ? undefined : visible(last_error)}>
                {[last_status, last_error === null ? null : visible(last_error)]
                  .filter((part) => part !== null)
                  .join(" · ") || "–"}
              </span>
            ),
          },
          {
            name: "Next try",
            wide: true,
            number: true,
            cell: ({ next_try_at }) => <When at={next_try_at} />,
          },
          { name: "Made", number: true, cell: ({ created_at }) => <When at={created_at} /> },
        ]}
      />
    </Page>
  );
}
