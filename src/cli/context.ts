import type { Client } from "../client/client.ts";
import type { Config } from "../config.ts";
import { type ConnectionFlags, connect } from "./connection.ts";
import type { Terminal } from "./terminal.ts";

/** What every command takes from its surroundings. */
export interface CommandContext {
  readonly config: Config;
  readonly terminal: Terminal;
  readonly directory: string;
  /** Of this package. */
  readonly version: string;
  /** Milliseconds since 1970, for ages only. */
  readonly now: () => number;
}

/** The flags that every command to a server has. */
export interface ServerFlags extends ConnectionFlags {
  readonly output?: OutputFormat | undefined;
}

export const outputFormats = ["text", "json", "yaml", "name"] as const;
export type OutputFormat = (typeof outputFormats)[number];

export function clientOf(context: CommandContext, flags: ServerFlags): Client {
  return connect(flags, context.config, context.directory);
}

/** A value for programs: JSON, or the same as YAML. */
export async function printValue(
  context: CommandContext,
  format: "json" | "yaml",
  value: unknown,
): Promise<void> {
  if (format === "json") return context.terminal.out(`${JSON.stringify(value, null, 2)}\n`);
  const { stringify } = await import("yaml");
  return context.terminal.out(stringify(value));
}
