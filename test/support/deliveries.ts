import { type TenantId, uuidv7 } from "../../src/core/ids.ts";
import { insertPublication, type PublicationId } from "../../src/core/outbox.store.ts";
import { type Database, transition } from "../../src/core/postgres/transition.ts";
import type { Destination } from "../../src/wire/agent.ts";

/** Whoever writes rows: a kernel, or a stack with its foundation's database. */
export interface Rows {
  readonly db: Database;
  readonly ask: <Row extends object>(text: string, values?: readonly unknown[]) => Promise<Row[]>;
}

/** A session whose agent names these destinations. */
export async function insertSession(
  { ask }: Rows,
  tenant: TenantId,
  destinations: readonly Destination[] = [],
): Promise<{ readonly session: string; readonly agent: string }> {
  const [session, agent] = [uuidv7(), uuidv7()];
  await ask(
    "insert into holdfast.agents (tenant_id, agent_id, name, runtime) values ($1, $2, $3, 'process')",
    [tenant, agent, `agent-${agent}`],
  );
  await insertTemplate({ ask }, tenant, { agent, version: 1, destinations });
  await ask(
    "insert into holdfast.cloud_sessions (tenant_id, session_id, agent_id, agent_version) values ($1, $2, $3, 1)",
    [tenant, session, agent],
  );
  return { session, agent };
}

export async function insertTemplate(
  { ask }: Pick<Rows, "ask">,
  tenant: TenantId,
  template: {
    readonly agent: string;
    readonly version: number;
    readonly destinations: readonly Destination[];
  },
): Promise<void> {
  const { agent, version, destinations } = template;
  await ask(
    `insert into holdfast.agent_templates (tenant_id, agent_id, version, template, template_digest)
     values ($1, $2, $3, $4, repeat('a', 64))`,
    [tenant, agent, version, JSON.stringify({ command: ["true"], destinations })],
  );
}

/** A session's reply number `ordinal`, as its commit writes it. */
export async function publishReply(
  { db }: Pick<Rows, "db">,
  tenant: TenantId,
  reply: { readonly session: string; readonly ordinal: number; readonly destination?: string },
): Promise<PublicationId> {
  const { session, ordinal, destination = "hook" } = reply;
  const id = await transition(db, { role: "controller", tenant, name: "publish" }, (tx) =>
    insertPublication(tx, {
      source: { kind: "activation", id: uuidv7() },
      session,
      ordinal: BigInt(ordinal),
      destination,
      payload: { session_id: session, ordinal, reply: { text: `reply ${ordinal}` } },
    }),
  );
  if (id === null) throw new Error("it was published before");
  return id;
}

/** One delivery of a session of its own. A dead one has been tried once. */
export async function insertDelivery(
  rows: Rows,
  tenant: TenantId,
  {
    state = "pending",
    destination = "hook",
  }: { readonly state?: string; readonly destination?: string } = {},
): Promise<PublicationId> {
  const { session } = await insertSession(rows, tenant);
  const id = await publishReply(rows, tenant, { session, ordinal: 1, destination });
  if (state !== "dead") return id;
  await rows.ask("delete from holdfast.leases where resource_id = $1", [id]);
  await rows.ask(
    `update holdfast.publication_outbox set state = 'dead', tries = 1, settled_at = now(), last_status = 410,
       last_error = 'The destination answered 410.' where publication_id = $1`,
    [id],
  );
  return id;
}
