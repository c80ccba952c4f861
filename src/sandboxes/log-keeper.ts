import type { HeldLease } from "../core/lease.ts";
import { collectLog } from "./collector.ts";
import { type LogKeeper, type NamedSandbox, readSpec, runtimeOf, type SandboxContext } from "./context.ts";
import type { SandboxRecords } from "./record.store.ts";
import type { Sandbox } from "./sandbox.ts";
import { environmentSecrets } from "./secret.ts";

/** `stored` is called after output was stored, for whoever reads it as it comes. */
export function logKeeper(
  context: SandboxContext,
  lease: HeldLease,
  records: SandboxRecords,
  signal: AbortSignal,
  stored: () => void = () => undefined,
): LogKeeper {
  const followers = new Map<string, { readonly stop: AbortController; readonly ended: Promise<void> }>();

  async function collect(sandbox: NamedSandbox, follow: boolean, until: AbortSignal): Promise<void> {
    const runtime = runtimeOf(context, sandbox);
    const { spec } = await readSpec(context, lease, sandbox);
    const secrets = [
      context.callback.token(sandbox),
      ...environmentSecrets(spec.env),
      ...(await runtime.secretValues(spec, until)),
    ];
    const room = await records.readLogRoom(sandbox.id, context.settings.logBytesMax);
    const store: Parameters<typeof collectLog>[2]["store"] = async (append) => {
      const advanced = await records.appendLog(sandbox.id, append);
      if (advanced && append.chunks.length > 0) stored();
      return advanced;
    };
    await collectLog(runtime, sandbox, { follow, secrets, room, store }, until);
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
