import type { Client, DeliveryDetail, DeliveryState, DeliveryView } from "../client/client.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { Exit, failureOf, failureText } from "./failures.ts";
import { deliveryIdOf, sessionIdOf } from "./job-id.ts";
import { tableText } from "./table.ts";
import type { Colors } from "./terminal.ts";
import { age, instantText } from "./time-text.ts";
import { visible } from "./visible.ts";

export interface DeliveryFlags extends ServerFlags {
  readonly state?: DeliveryState;
  readonly session?: string;
  readonly destination?: string;
  readonly limit: number;
}

/** `holdfast get deliveries [ID…]`: newest first. */
export async function getDeliveries(
  context: CommandContext,
  typed: readonly string[],
  flags: DeliveryFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const deliveries = typed.length > 0 ? await named(client, typed) : await listed(client, flags);
  const { output } = flags;
  const { terminal, now } = context;
  if (output === "json" || output === "yaml") {
    const [first] = deliveries;
    return printValue(context, output, typed.length === 1 ? first : { items: deliveries });
  }
  if (output === "name") return terminal.out(deliveries.map(({ id }) => `delivery/${id}\n`).join(""));
  if (deliveries.length === 0) return terminal.err("no delivery fits\n");
  const rows = deliveries.map((delivery) => [
    delivery.id,
    delivery.session_id,
    String(delivery.ordinal),
    visible(delivery.destination),
    delivery.state,
    String(delivery.tries),
    age(delivery.created_at, now()),
    visible(delivery.last_error ?? ""),
  ]);
  const heading = ["ID", "SESSION", "REPLY", "DESTINATION", "STATE", "TRIES", "AGE", "LAST ERROR"];
  await terminal.out(
    tableText(heading, rows, (cell, column) =>
      column === 4 ? deliveryColor(cell, terminal.colors)(cell) : cell,
    ),
  );
}

async function named(client: Client, typed: readonly string[]): Promise<DeliveryView[]> {
  const deliveries: DeliveryView[] = [];
  for (const text of typed) {
    const { payload: _, ...delivery } = await client.getDelivery(await deliveryIdOf(client, text));
    deliveries.push(delivery);
  }
  return deliveries;
}

async function listed(client: Client, flags: DeliveryFlags): Promise<DeliveryView[]> {
  const { state, destination, limit } = flags;
  const session = flags.session === undefined ? undefined : await sessionIdOf(client, flags.session);
  const deliveries: DeliveryView[] = [];
  for await (const one of client.listDeliveries({
    state,
    session,
    destination,
    limit: Math.min(limit, 200),
  })) {
    deliveries.push(one);
    if (deliveries.length >= limit) break;
  }
  return deliveries;
}

function deliveryColor(state: string, colors: Colors): (text: string) => string {
  if (state === "dead") return colors.red;
  return state === "delivered" ? colors.green : colors.yellow;
}

/** `holdfast describe delivery ID`: how it stands, in the words of a person. */
export async function describeDelivery(
  context: CommandContext,
  typed: string,
  flags: ServerFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const delivery = await client.getDelivery(await deliveryIdOf(client, typed));
  if (flags.output === "json" || flags.output === "yaml") return printValue(context, flags.output, delivery);
  const { terminal, now } = context;
  await terminal.out(`${describe(delivery, terminal.colors, now()).join("\n")}\n`);
}

function describe(delivery: DeliveryDetail, colors: Colors, now: number): string[] {
  const { state, tries, tried_at, last_error, settled_at, created_at, payload } = delivery;
  const field = (name: string, text: string) => `${name.padEnd(12)} ${text}`;
  const tried = tried_at === null ? "" : `, last at ${instantText(tried_at)} (${age(tried_at, now)} ago)`;
  return [
    field("Delivery", delivery.id),
    field("Session", `${delivery.session_id}, reply ${delivery.ordinal}`),
    field("Destination", colors.bold(visible(delivery.destination))),
    field("State", deliveryColor(state, colors)(standing(delivery))),
    field("Tries", `${tries}${tried}`),
    ...(last_error === null ? [] : [field("Last error", visible(last_error))]),
    field("Written", `${instantText(created_at)} (${age(created_at, now)} ago)`),
    ...(settled_at === null ? [] : [field("Settled", instantText(settled_at))]),
    "",
    visible(JSON.stringify(payload)),
  ];
}

function standing({ state, destination, next_try_at }: DeliveryView): string {
  switch (state) {
    case "delivered":
      return destination === "inbox" ? "in the inbox" : "delivered";
    case "dead":
      return "dead: `holdfast redeliver` has it tried again";
    case "pending":
      return next_try_at === null
        ? "pending: it is being delivered, or waits for an earlier one of its session"
        : `pending: tried next at ${instantText(next_try_at)}`;
  }
}

/** `holdfast redeliver ID…`: one that can't be redelivered does not keep the others from it. */
export async function redeliver(
  context: CommandContext,
  typed: readonly string[],
  flags: ServerFlags,
): Promise<void> {
  const { terminal } = context;
  const client = clientOf(context, flags);
  let failed: unknown;
  for (const text of typed) {
    try {
      const delivery = await client.redeliver(await deliveryIdOf(client, text));
      if (flags.output === "json") await terminal.out(`${JSON.stringify(delivery)}\n`);
      else if (flags.output === "name") await terminal.out(`delivery/${delivery.id}\n`);
      else await terminal.out(`${delivery.id} is tried again for ${visible(delivery.destination)}\n`);
    } catch (error) {
      if (typed.length === 1) throw error;
      if (flags.output === "json") await terminal.err(`${JSON.stringify({ error: failureOf(error) })}\n`);
      else await terminal.err(failureText(error, terminal.errorColors));
      failed ??= error;
    }
  }
  if (failed !== undefined) throw new Exit(failureOf(failed).exit_code);
}
