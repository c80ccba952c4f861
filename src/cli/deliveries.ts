import type { DeliveryDetail, DeliveryState, DeliveryView } from "../client/client.ts";
import { inboxName } from "../wire/delivery.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { Exit, failureOf, failureText } from "./failures.ts";
import { deliveryIdOf, sessionIdOf } from "./job-id.ts";
import { getList, type ListFlags, type Shown } from "./listing.ts";
import type { Colors } from "./terminal.ts";
import { age, instantText } from "./time-text.ts";
import { visible } from "./visible.ts";

interface DeliveryFlags extends ListFlags {
  readonly state?: DeliveryState;
  readonly session?: string;
  readonly destination?: string;
}

/** `holdfast get deliveries [ID…]`: newest first. */
export async function getDeliveries(
  context: CommandContext,
  typed: readonly string[],
  flags: DeliveryFlags,
): Promise<void> {
  const client = clientOf(context, flags);
  const { state, destination } = flags;
  const session = flags.session === undefined ? undefined : await sessionIdOf(client, flags.session);
  await getList(
    context,
    flags,
    shown,
    (limit) => client.listDeliveries({ state, session, destination, limit }),
    {
      typed,
      async get(text) {
        const { payload: _, ...delivery } = await client.getDelivery(await deliveryIdOf(client, text));
        return delivery;
      },
    },
  );
}

const shown: Shown<DeliveryView> = {
  kind: "delivery",
  heading: ["ID", "SESSION", "REPLY", "DESTINATION", "STATE", "TRIES", "AGE", "LAST ERROR"],
  row: (delivery, now) => [
    delivery.id,
    delivery.session_id,
    String(delivery.ordinal),
    delivery.destination,
    delivery.state,
    String(delivery.tries),
    age(delivery.created_at, now),
    delivery.last_error ?? "",
  ],
  nameOf: ({ id }) => id,
  none: "no delivery fits",
  color: (cell, column, colors) => (column === 4 ? deliveryColor(cell, colors)(cell) : cell),
};

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
      return destination === inboxName ? "in the inbox" : "delivered";
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
