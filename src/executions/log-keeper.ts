import type { HeldLease } from "../core/lease.ts";
import { view } from "../core/postgres/transition.ts";
import { type Runtime, RuntimeRefusal } from "../core/runtime.port.ts";
import { collectLog } from "../sandboxes/collector.ts";
import { readSandboxSpec } from "../sandboxes/sandbox.store.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import type { ControllerContext } from "./attend.ts";
import { appendProgress } from "./phase.store.ts";

/** Stores the output of the attempt's sandboxes while this controller holds the attempt. */
export interface LogKeeper {
  /** Follow a running sandbox in the background. Again for the same one: nothing. */
  follow(sandbox: Sandbox & { readonly uid: string }): void;
  /** Read what is left of a stopped one, from where the database says. */
  drain(sandbox: Sandbox & { readonly uid: string }): Promise<void>;
  /** End a follower, which has until then stored all that it read. */
  settle(sandbox: Sandbox): Promise<void>;
  stop(): Promise<void>;
}

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

/** What it runs, and its digest. */
export function readSpec(
  context: Pick<ControllerContext, "db">,
  lease: Pick<HeldLease, "tenant">,
  sandbox: Pick<Sandbox, "id">,
): ReturnType<typeof readSandboxSpec> {
  const scope = { role: "controller", tenant: lease.tenant, name: "readSandboxSpec" } as const;
  return view(context.db, scope, (tx) => readSandboxSpec(tx, sandbox.id));
}

/** The runtime that a sandbox was made with; it must be configured here too. */
export function runtimeOf(context: ControllerContext, sandbox: Pick<Sandbox, "runtime" | "name">): Runtime {
  const runtime = context.runtimes.get(sandbox.runtime);
  if (runtime === undefined) {
    throw new RuntimeRefusal(
      "invalid",
      `${sandbox.name} runs on ${sandbox.runtime}, which this controller does not have`,
    );
  }
  return runtime;
}
