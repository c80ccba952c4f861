import type { HeldLease } from "../core/lease.ts";
import { collectLog } from "../sandboxes/collector.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { environmentSecrets } from "../sandboxes/secret.ts";
import { type ControllerContext, type LogKeeper, readSpec, runtimeOf } from "./context.ts";
import { appendProgress, readLogRoom } from "./phase.store.ts";

export function logKeeper(context: ControllerContext, lease: HeldLease, signal: AbortSignal): LogKeeper {
  const followers = new Map<string, { readonly stop: AbortController; readonly ended: Promise<void> }>();

  async function collect(
    sandbox: Sandbox & { readonly uid: string },
    follow: boolean,
    until: AbortSignal,
  ): Promise<void> {
    const runtime = runtimeOf(context, sandbox);
    const { spec } = await readSpec(context, lease, sandbox);
    const secrets = [
      context.callback.token(sandbox),
      ...environmentSecrets(spec.env),
      ...(await runtime.secretValues(spec, until)),
    ];
    const { logBytesMax } = context.settings;
    await collectLog(
      runtime,
      sandbox,
      {
        follow,
        secrets,
        room: await readLogRoom(context.db, lease, sandbox.id, logBytesMax),
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
        // It goes on from what is stored at the next look, or when the sandbox has stopped.
        if (!until.aborted) {
          context.log("warn", "live output is interrupted", { sandbox: sandbox.name, error: String(error) });
          followers.delete(sandbox.id);
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
