import { ApiError } from "../../client/client.ts";
import type { SystemView } from "../../wire/overview.ts";
import { visible } from "../../wire/visible.ts";
import { client } from "../account.ts";
import { useEvery } from "../every.ts";
import { useLoaded } from "../loading.ts";
import { Empty, Loading } from "../parts/empty.tsx";
import { Fact, Facts, Id } from "../parts/facts.tsx";
import { Page, Section } from "../parts/page.tsx";
import { Problem } from "../parts/problem.tsx";
import { Status } from "../parts/status.tsx";
import { When } from "../parts/when.tsx";

const renewMs = 10_000;

export function System() {
  const { value, error, reload } = useLoaded("system", (signal) => client.getSystem({ signal }));
  useEvery(renewMs, reload);
  if (error instanceof ApiError && error.code === "forbidden") {
    return (
      <Page title="System">
        <Empty title="This page is about the whole installation.">
          <p>
            It needs a token with the scope <code>operator</code>:{" "}
            <code>holdfast token create --scope '*' operator …</code>
          </p>
        </Empty>
      </Page>
    );
  }
  return (
    <Page title="System">
      {error === null ? null : <Problem error={error} again={reload} />}
      {value === null ? error === null ? <Loading /> : null : <Installation system={value} />}
    </Page>
  );
}

function Installation({ system }: { readonly system: SystemView }) {
  const { schema } = system;
  return (
    <>
      <Facts>
        <Fact name="Installation">
          <Id>{system.installation}</Id>
        </Fact>
        <Fact name="Store incarnation">
          <Id>{system.incarnation}</Id>
        </Fact>
        <Fact name="Made">
          <When at={system.created_at} />
        </Fact>
        <Fact name="Deployment epoch">{system.deployment_epoch}</Fact>
        <Fact name="Change log">
          position {system.changes.position}, kept from {system.changes.floor}
        </Fact>
      </Facts>
      <Section title="Schema">
        <Facts>
          <Fact name="Version">{schema.version}</Fact>
          <Fact name="This release knows">
            {schema.supported.minimum} to {schema.supported.maximum}
          </Fact>
          <Fact name="Floors">
            readers {schema.reader_floor}, writers {schema.writer_floor}
          </Fact>
        </Facts>
        <details>
          <summary>Applied migrations ({schema.migrations.length})</summary>
          <table class="plain">
            <thead>
              <tr>
                <th scope="col" class="number">
                  Version
                </th>
                <th scope="col">Name</th>
                <th scope="col" class="wide">
                  SHA-256
                </th>
                <th scope="col" class="number">
                  Applied
                </th>
              </tr>
            </thead>
            <tbody>
              {schema.migrations.map(({ version, name, checksum, applied_at }) => (
                <tr key={version}>
                  <td class="number">{version}</td>
                  <td>{visible(name)}</td>
                  <td class="wide">
                    <code>{checksum.slice(0, 16)}…</code>
                  </td>
                  <td class="number">
                    <When at={applied_at} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </details>
      </Section>
      <Section title="Processes">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Process</th>
              <th scope="col">State</th>
              <th scope="col" class="wide">
                Incarnation
              </th>
              <th scope="col" class="wide">
                Release
              </th>
              <th scope="col" class="number">
                Leases
              </th>
              <th scope="col" class="wide number">
                Started
              </th>
              <th scope="col" class="number">
                Seen
              </th>
            </tr>
          </thead>
          <tbody>
            {system.incarnations.map((one) => (
              <tr key={one.id}>
                <td>{visible(one.process)}</td>
                <td>
                  <Status
                    state={one.alive ? "alive" : one.ended_at === null ? "silent" : "ended"}
                    tone={one.alive ? "good" : one.ended_at === null ? "bad" : "off"}
                  />
                </td>
                <td class="wide">
                  <code>{one.id}</code>
                </td>
                <td class="wide">{visible(one.release)}</td>
                <td class="number">{one.leases}</td>
                <td class="wide number">
                  <When at={one.started_at} />
                </td>
                <td class="number">
                  <When at={one.seen_at} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Section>
      <Section title="Pools">
        <table class="plain">
          <thead>
            <tr>
              <th scope="col">Pool</th>
              <th scope="col" class="number">
                Slots
              </th>
              <th scope="col" class="number">
                Used
              </th>
              <th scope="col" class="number">
                Waiting
              </th>
            </tr>
          </thead>
          <tbody>
            {system.pools.map(({ pool, slots, used, waiting }) => (
              <tr key={pool}>
                <td>{visible(pool)}</td>
                <td class="number">{slots}</td>
                <td class="number">{used}</td>
                <td class="number">{waiting}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Section>
    </>
  );
}
