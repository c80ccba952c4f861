import type { HeldLease } from "../core/lease.ts";
import { collectLog } from "../sandboxes/collector.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { type ControllerContext, type LogKeeper, readSpec, runtimeOf } from "./context.ts";
import { appendProgress } from "./phase.store.ts";

export function logKeeper(context: ControllerContext, lease: HeldLease, signal: AbortSignal): LogKeeper {
  const followers = new Map<string, { readonly stop: AbortController; readonly ended: Promise<void> }>();

  async function collect(
    sandbox: Sandbox & { readonly uid: string },
    follow: boolean,
    until: AbortSignal,
  ): Promise<void> {
    const runtime = runtimeOf(context, sandbox);
    const { spec } = await readSpec(context, lease, sandbox);
    const secrets = [context.callback.token(sandbox), ...(await runtime.secretValues(spec, until))];
    await collectLog(
      runtime,
      sandbox,
      {
        follow,
        secrets,
        bytesMax: context.settings.logBytesMax,
        store: (append) => appendProgress(context.db, lease, sandbox.id, append),
      },
      until,
    );
  }

  async function settle(sandbox: Sandbox): Promise<void> {
    const follower = followers.get(sandbox.id);
    if (follower === undefined) return;
    follower.stop.abort();
    await follower.ended;
    followers.delete(sandbox.id);
  }

  return {
    follow(sandbox) {
      if (followers.has(sandbox.id)) return;
      const stop = new AbortController();
      const until = AbortSignal.any([signal, stop.signal]);
      const ended = collect(sandbox, true, until).catch((error: unknown) => {
        // What it did not store is read again when the sandbox has stopped.
        if (!until.aborted) {
          context.log("warn", "live output is interrupted", { sandbox: sandbox.name, error: String(error) });
        }
      });
      followers.set(sandbox.id, { stop, ended });
    },
    drain: (sandbox) => collect(sandbox, false, signal),
    settle,
    async stop() {
      for (const follower of followers.values()) follower.stop.abort();
      await Promise.all([...followers.values()].map((follower) => follower.ended));
      followers.clear();
    },
  };
}
