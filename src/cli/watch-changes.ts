import { type Client, CursorExpiredError, type WatchOptions } from "../client/client.ts";
import type { ChangeEvent } from "../wire/job.ts";
import { type CommandContext, clientOf, type ServerFlags } from "./context.ts";
import { jobIdOf, sessionIdOf } from "./job-id.ts";
import { visible } from "./visible.ts";

export interface WatchFlags extends ServerFlags {
  readonly job?: string;
  readonly session?: string;
  readonly kind?: string;
  readonly after?: string;
}

/** Changes for ever; from the fresh cursor on when the old one is no longer kept. */
export async function* watchChanges(client: Client, options: WatchOptions): AsyncGenerator<ChangeEvent> {
  let { after } = options;
  for (;;) {
    try {
      yield* client.watch({ ...options, after });
    } catch (error) {
      if (!(error instanceof CursorExpiredError) || error.cursor === null || after === error.cursor)
        throw error;
      after = error.cursor;
    }
  }
}

/** `holdfast watch`: each change as a line. A cursor that was asked for and is gone is an error, not a gap. */
export async function watch(context: CommandContext, flags: WatchFlags): Promise<void> {
  const client = clientOf(context, flags);
  const job = flags.job === undefined ? undefined : await jobIdOf(client, flags.job);
  const session = flags.session === undefined ? undefined : await sessionIdOf(client, flags.session);
  for await (const change of client.watch({ after: flags.after, job, session, kind: flags.kind })) {
    await context.terminal.out(flags.output === "json" ? `${JSON.stringify(change)}\n` : changeText(change));
  }
}

export function changeText({ at, kind, id, operation, resource_version }: ChangeEvent): string {
  return `${at.slice(11, 23)}  ${visible(kind)}/${id}  ${visible(operation)}  version ${resource_version}\n`;
}
