import type { Logger } from "pino";
import type { BlobStore } from "../core/blob.port.ts";
import { monotonicMs } from "../core/monotonic.ts";
import type { GatewayLimits } from "../http/limits.ts";
import type { Authenticator } from "../http/principal.ts";
import { type RunningGateway, startGateway } from "../http/server.ts";
import { apiRoutes } from "./api.ts";
import { consoleFiles } from "./console.ts";
import { examine } from "./doctor.ts";
import type { Foundation } from "./process.ts";
import { loopProgress, watchTurns } from "./progress.ts";

export interface GatewayRole {
  readonly host: string;
  readonly port: number;
  readonly release: string;
  readonly blobs: BlobStore;
  readonly queueMax: number;
  /** Where agents run whose template names no runtime. */
  readonly runtime?: string;
  readonly log: Logger;
  /** Whether it serves the routes of operators: its login then needs the roles operator and dispatcher. */
  readonly operator?: boolean;
  readonly limits?: Partial<GatewayLimits>;
  /** How long it goes on serving, no longer ready, before it closes. */
  readonly drainDelayMs?: number;
  /** Besides our own tokens. */
  readonly authenticators?: readonly Authenticator[];
}

/** The public API of a process. */
export async function openGateway(foundation: Foundation, role: GatewayRole): Promise<RunningGateway> {
  const { db, reader, sequencer, doorbell, lookout } = foundation;
  const stamping = watchTurns(lookout, "unstamped", sequencer);
  const reading = watchTurns(lookout, "position", reader);
  const progress = () => [
    loopProgress("lookout", lookout.lastAnsweredAt),
    loopProgress("sequencer", monotonicMs() - stamping.overdueMs()),
    loopProgress("reader", monotonicMs() - reading.overdueMs()),
  ];
  const gateway = await startGateway({
    db,
    reader,
    doorbell,
    host: role.host,
    port: role.port,
    release: role.release,
    installation: foundation.store.installationId,
    routes: apiRoutes({
      blobs: role.blobs,
      queueMax: role.queueMax,
      progress,
      ...(role.runtime === undefined ? {} : { runtime: role.runtime }),
      examine: role.operator === true ? (tenant) => examine(db, tenant) : null,
    }),
    ...(role.limits === undefined ? {} : { limits: role.limits }),
    ...(role.drainDelayMs === undefined ? {} : { drainDelayMs: role.drainDelayMs }),
    authenticators: role.authenticators ?? [],
    console: consoleFiles,
    log: role.log,
    progress,
  });
  return {
    ...gateway,
    async close() {
      await gateway.close();
      stamping.stop();
      reading.stop();
    },
  };
}
