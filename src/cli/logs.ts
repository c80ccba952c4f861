import type { LogLine } from "../wire/job.ts";
import { type CommandContext, clientOf, type ServerFlags } from "./context.ts";
import { jobIdOf } from "./job-id.ts";
import { visible } from "./visible.ts";

export interface LogFlags extends ServerFlags {
  readonly follow?: boolean;
  readonly phase?: string;
  readonly attempt?: number;
  readonly since?: string;
  readonly tail?: number;
  readonly timestamps?: boolean;
  readonly prefix?: boolean;
}

/** `holdfast logs [-f] ID`. */
export async function logs(context: CommandContext, typed: string, flags: LogFlags): Promise<void> {
  const client = clientOf(context, flags);
  const id = await jobIdOf(client, typed);
  const { follow, attempt, phase, since, tail } = flags;
  for await (const line of client.logs(id, { follow, attempt, phase, since, tail })) {
    await context.terminal.out(
      flags.output === "json" ? `${JSON.stringify(line)}\n` : lineText(context, line, flags),
    );
  }
}

function lineText({ terminal }: CommandContext, line: LogLine, flags: LogFlags): string {
  const { colors } = terminal;
  const time = flags.timestamps === true ? `${colors.dim(line.at)} ` : "";
  const prefix = flags.prefix === true ? `${colors.dim(`${line.attempt}/${visible(line.phase)} |`)} ` : "";
  const text = terminal.foreign(line.text);
  return `${time}${prefix}${line.stream === "system" ? colors.yellow(text) : text}\n`;
}
