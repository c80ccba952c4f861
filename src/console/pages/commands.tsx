import type { CommandView } from "../../client/client.ts";
import { visible } from "../../wire/visible.ts";
import { client } from "../account.ts";
import { useListing } from "../listing.ts";
import { Empty } from "../parts/empty.tsx";
import { asked, Filters, Text } from "../parts/filter.tsx";
import { Page } from "../parts/page.tsx";
import { Rows } from "../parts/rows.tsx";
import { When } from "../parts/when.tsx";
import { to } from "../place.ts";

export function Commands() {
  const principal = asked("principal");
  const operation = asked("operation");
  const target = asked("target");
  const listing = useListing<CommandView>({
    key: JSON.stringify([principal, operation, target]),
    page: (token, signal) =>
      client.listCommands({ principal, operation, target, signal, limit: 100 }).page(token),
    // Commands are no changes, but nearly all of them make one.
    read: () => "look",
  });
  const filtered = [principal, operation, target].some((one) => one !== undefined);
  return (
    <Page title="Commands">
      <p class="muted">Who asked for what, when, and what came of it. What was sent is not kept here.</p>
      <Filters>
        <Text name="principal" label="Who" hint="exactly" />
        <Text name="operation" label="Operation" hint="jobs.cancel" />
        <Text name="target" label="Target" hint="/v1/jobs/…" />
      </Filters>
      <Rows
        listing={listing}
        label="Commands, newest first"
        noun="command"
        empty={
          <Empty title={filtered ? "No command fits this filter." : "Nobody has asked for anything yet."} />
        }
        columns={[
          { name: "Operation", cell: ({ operation }) => <span class="operation">{visible(operation)}</span> },
          { name: "Who", cell: ({ principal }) => visible(principal) },
          { name: "Target", wide: true, cell: ({ target }) => <Target target={target} /> },
          { name: "Answer", wide: true, number: true, cell: ({ status }) => status },
          {
            name: "Request",
            wide: true,
            cell: ({ request_id }) =>
              request_id === null ? "–" : <code class="cut">{visible(request_id)}</code>,
          },
          { name: "When", number: true, cell: ({ at }) => <When at={at} /> },
        ]}
      />
    </Page>
  );
}

const pages = new Set(["jobs", "sessions", "deliveries", "work"]);

function Target({ target }: { readonly target: string }) {
  const [, , collection = "", id = ""] = target.split("/");
  const text = <code class="cut">{visible(target)}</code>;
  return id === "" || !pages.has(collection) ? text : <a href={to(collection, id)}>{text}</a>;
}
