import type { CommandView } from "../wire/command.ts";
import { type ListCommandsRow, listCommands as listCommandRows, readCommand } from "./command.sql.ts";
import { HoldfastError } from "./errors.ts";
import type { Transaction } from "./postgres/transition.ts";
import { formatInstant, type Instant } from "./time.ts";

export interface CommandFilter {
  readonly principal: string | null;
  readonly operation: string | null;
  readonly target: string | null;
}

export interface CommandPlace {
  readonly at: Instant;
  readonly id: string;
}

/** The audit, newest first: commands whose outcome was committed. */
export async function listCommands(
  tx: Transaction,
  filter: CommandFilter,
  { after, limit }: { readonly after: CommandPlace | null; readonly limit: number },
): Promise<{ readonly commands: readonly CommandView[]; readonly next: CommandPlace | null }> {
  const rows = await tx.run(listCommandRows, {
    ...filter,
    after_created_at: after?.at ?? null,
    after_command: after?.id ?? null,
    limit: BigInt(limit) + 1n,
  });
  const page = rows.slice(0, limit);
  const last = page.at(-1);
  const next =
    rows.length > limit && last !== undefined ? { at: last.created_at, id: last.command_id } : null;
  return { commands: page.map(commandView), next };
}

/** Throws `not_found`. */
export async function getCommand(tx: Transaction, command: string): Promise<CommandView> {
  const row = await tx.run(readCommand, { command });
  if (row === undefined) throw new HoldfastError("not_found", "there is no such command");
  return commandView(row);
}

function commandView(row: ListCommandsRow): CommandView {
  return {
    id: row.command_id,
    principal_id: row.principal_id,
    principal: row.principal,
    operation: row.operation,
    target: row.target,
    idempotency_key: row.idempotency_key,
    request_id: row.request_id,
    traceparent: row.traceparent,
    at: formatInstant(row.created_at),
    status: row.response_status,
  };
}
