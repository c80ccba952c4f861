import { Command } from "commander";
import { assertSet, type Config, databaseOf, type OptionalKey, required } from "../config.ts";
import { openEgress } from "../core/egress/egress.ts";
import { toMilliseconds } from "../core/time.ts";
import { signingKeysIn } from "../deliveries/signing-keys.ts";
import { openAuthenticators } from "../main/authenticators.ts";
import { blobKeysNeeded, openBlobs } from "../main/blobs.ts";
import { controllerKinds, openController } from "../main/controller.ts";
import { openGateway } from "../main/gateway.ts";
import { readCallbackKeys } from "../main/keys.ts";
import { openLog } from "../main/log.ts";
import { type Metrics, openMetrics } from "../main/metrics.ts";
import { type Foundation, openFoundation } from "../main/process.ts";
import { openRuntime, runtimeKeysNeeded } from "../main/runtimes.ts";
import type { CommandContext } from "./context.ts";
import { type RuntimeFlags, runtimeFlag, untilAborted } from "./dev.ts";
import { onInterrupt } from "./interrupt.ts";

const attemptsMax = 200;
/** A process that serves runs until it is told to stop. */
const never = new Promise<Error>(() => undefined);

/** `holdfast gateway`: the public API, in as many replicas as one likes. */
export function gatewayCommand(context: CommandContext): Command {
  return new Command("gateway")
    .description("serve the public API")
    .addHelpText(
      "after",
      `
Examples:
  $ HOLDFAST_DATABASE_URL=… HOLDFAST_INSTALLATION=prod HOLDFAST_BLOB_DIRECTORY=/blobs \\
    HOLDFAST_CALLBACK_KEYS_FILE=/keys holdfast gateway

It never applies a migration: \`holdfast schema apply\` does. SIGTERM drains and ends it.`,
    )
    .action(() => {
      const { config } = context;
      const oidc: readonly OptionalKey[] = config.oidcIssuer === null ? [] : ["oidcAudience"];
      assertSet(config, [...storeKeysNeeded(config), ...oidc]);
      return serve(context, { name: "gateway", kinds: [] }, async (foundation, log) => {
        // The gateway reads and grants nothing, so no origin is ever asked for.
        const { blobs } = openBlobs(config, () => "http://127.0.0.1", log);
        const gateway = await openGateway(foundation, {
          host: config.host,
          port: config.port,
          release: context.version,
          blobs,
          queueMax: config.queueMax,
          runtime: config.runtime,
          log,
          operator: config.operatorApi,
          limits: { rate: config.rate, streamsPerPrincipal: config.streamsMax },
          drainDelayMs: toMilliseconds(config.drainDelay),
          authenticators: await openAuthenticators(config, foundation.db),
        });
        await context.terminal.out(`gateway on ${gateway.address}\n`);
        return () => gateway.close();
      });
    });
}

/** `holdfast controller`: starts jobs and drives attempts, in as many replicas as one likes (E16). */
export function controllerCommand(context: CommandContext): Command {
  return new Command("controller")
    .description("start jobs and drive their attempts")
    .addOption(runtimeFlag())
    .addHelpText(
      "after",
      `
Examples:
  $ HOLDFAST_DATABASE_URL=… HOLDFAST_INSTALLATION=prod HOLDFAST_BLOB_DIRECTORY=/blobs \\
    HOLDFAST_SANDBOX_DIRECTORY=/sandboxes HOLDFAST_SECRETS_DIRECTORY=/secrets \\
    HOLDFAST_CALLBACK_KEYS_FILE=/keys holdfast controller
  $ HOLDFAST_KUBECONFIG=~/.kube/config HOLDFAST_KUBERNETES_NAMESPACE=sandboxes … \\
    holdfast controller --runtime kubernetes

Several may run on one store: leases decide who does what. SIGTERM gives everything back at once.`,
    )
    .action(async (flags: RuntimeFlags) => {
      const { config } = context;
      const kind = flags.runtime ?? config.runtime;
      assertSet(config, [...storeKeysNeeded(config), "callbackKeysFile", ...runtimeKeysNeeded(kind)]);
      const keys = readCallbackKeys(required(config, "callbackKeysFile"));
      const installation = required(config, "installation");
      const metrics = openMetrics({ release: context.version, process: "controller" });
      const runtime = await openRuntime(config, { kind, installation, onRequest: metrics.requests(kind) });
      const role = { name: "controller", kinds: controllerKinds, metrics };
      await serve(context, role, async (foundation, log) => {
        let origin = config.callbackUrl ?? "";
        const { blobs, beside } = openBlobs(config, () => origin, log);
        const running = await openController(foundation, {
          installation,
          runtime,
          blobs,
          beside,
          callback: { host: config.callbackHost, port: config.callbackPort, url: config.callbackUrl, keys },
          retention: config.artifactRetention,
          queueMax: config.queueMax,
          logBytesMax: BigInt(config.logBytesMax),
          logRetention: config.logRetention,
          ledger: {
            commands: config.commandRetention,
            deliveries: config.deliveryRetention,
            changes: config.changeRetention,
          },
          work: {
            finished: config.workRetention,
            observations: config.workObservationRetention ?? new Map(),
          },
          attemptsMax,
          runsMax: config.runsMax,
          sessionsMax: config.sessionsMax,
          deliveries: {
            egress: openEgress({ allowed: config.egressAllow ?? [] }),
            keys: signingKeysIn(config.signingKeysDirectory),
          },
          metrics,
          log,
        });
        if (origin === "") origin = `http://${config.callbackHost}:${running.callbackPort}`;
        await context.terminal.out(`controller, callbacks on ${origin}\n`);
        return () => running.close();
      });
    });
}

/** Named all at once, before anything is opened. */
function storeKeysNeeded(config: Config): readonly OptionalKey[] {
  const direct: readonly OptionalKey[] = config.database?.pooler === undefined ? [] : ["databaseDirect"];
  return ["database", ...direct, "installation", ...blobKeysNeeded(config)];
}

async function serve(
  context: CommandContext,
  role: { readonly name: string; readonly kinds: readonly string[]; readonly metrics?: Metrics },
  open: (foundation: Foundation, log: ReturnType<typeof openLog>) => Promise<() => Promise<void>>,
): Promise<void> {
  const { config } = context;
  const interrupt = onInterrupt();
  const log = openLog(config.logLevel);
  const foundation = await openFoundation({
    settings: databaseOf(config),
    process: role.name,
    release: context.version,
    installation: required(config, "installation"),
    kinds: role.kinds,
    ...(role.metrics === undefined ? {} : { metrics: role.metrics }),
    log,
  });
  try {
    const close = await open(foundation, log);
    try {
      await untilAborted(interrupt.signal, never);
    } finally {
      await close();
    }
  } finally {
    await foundation.close();
    interrupt.stop();
  }
}
