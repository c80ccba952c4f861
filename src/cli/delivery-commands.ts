import { type Command, Option } from "commander";
import type { CommandContext, ServerFlags } from "./context.ts";
import { limitFlag } from "./flags.ts";
import { at, serverCommand } from "./server-command.ts";

/** What can be done with deliveries, below `get`, `describe` and the program itself. */
export function deliveryCommands(
  {
    program,
    get,
    describe,
  }: { readonly program: Command; readonly get: Command; readonly describe: Command },
  context: CommandContext,
): void {
  serverCommand(
    get,
    "deliveries [id...]",
    "what sessions tell their destinations, newest first",
    ["text", "json", "yaml", "name"],
    [
      ["holdfast get deliveries --state dead", "dead letters"],
      ["holdfast get deliveries --session ID --destination inbox", "a session's inbox"],
      ["holdfast get deliveries --state dead -o name | xargs holdfast redeliver", "for programs"],
    ],
  )
    .alias("delivery")
    .addOption(new Option("--state <state>", "in this state").choices(["pending", "delivered", "dead"]))
    .option("--session <id>", "of this session")
    .option("--destination <name>", "to this destination; `inbox` is the built-in one")
    .addOption(limitFlag())
    .action(async (ids: string[], flags) =>
      (await import("./deliveries.ts")).getDeliveries(context, ids, at(program, flags)),
    );

  serverCommand(
    describe,
    "delivery <id>",
    "a delivery, its tries, and what it tells",
    ["text", "json", "yaml"],
    [["holdfast describe delivery ID", "why it is not there yet, or dead"]],
  ).action(async (id: string, flags: ServerFlags) =>
    (await import("./deliveries.ts")).describeDelivery(context, id, at(program, flags)),
  );

  serverCommand(
    program,
    "redeliver <id...>",
    "have dead deliveries tried again",
    ["text", "json", "name"],
    [["holdfast redeliver ID", "once its destination is mended; under the same id"]],
  ).action(async (ids: string[], flags: ServerFlags) =>
    (await import("./deliveries.ts")).redeliver(context, ids, at(program, flags)),
  );
}
