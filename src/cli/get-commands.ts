import type { CommandView } from "../client/client.ts";
import { type CommandContext, clientOf } from "./context.ts";
import { getList, type ListFlags, type Shown } from "./listing.ts";
import { age } from "./time-text.ts";

interface CommandFlags extends ListFlags {
  readonly principal?: string;
  readonly operation?: string;
  readonly target?: string;
}

/** `holdfast get commands`: who asked for what, when, and what came of it. */
export async function getCommands(context: CommandContext, flags: CommandFlags): Promise<void> {
  const { principal, operation, target } = flags;
  const client = clientOf(context, flags);
  await getList(context, flags, shown, (limit) =>
    client.listCommands({ principal, operation, target, limit }),
  );
}

const shown: Shown<CommandView> = {
  kind: "command",
  heading: ["ID", "WHO", "OPERATION", "TARGET", "STATUS", "AGE", "REQUEST"],
  row: (command, now) => [
    command.id,
    command.principal,
    command.operation,
    command.target,
    String(command.status),
    age(command.at, now),
    command.request_id ?? "",
  ],
  nameOf: ({ id }) => id,
  none: "no command fits",
};
