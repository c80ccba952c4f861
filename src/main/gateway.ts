import type { Logger } from "pino";
import type { BlobStore } from "../core/blob.port.ts";
import { monotonicMs } from "../core/monotonic.ts";
import type { LoopProgress } from "../http/health.ts";
import { type RunningGateway, startGateway } from "../http/server.ts";
import { apiRoutes } from "./api.ts";
import { examine } from "./doctor.ts";
import type { Foundation } from "./process.ts";

export interface GatewayRole {
  readonly host: string;
  readonly port: number;
  readonly release: string;
  readonly blobs: BlobStore;
  readonly queueMax: number;
  readonly log: Logger;
  /** Whether it serves the routes of operators: its login then needs the roles operator and dispatcher. */
  readonly operator?: boolean;
}

/** A loop that has not turned, or a database that has not answered, for this long is stuck. */
const stuckMs = 30_000;

/** The public API of a process. */
export function openGateway(foundation: Foundation, role: GatewayRole): Promise<RunningGateway> {
  const { db, reader, doorbell, lookout } = foundation;
  const progress = (): LoopProgress[] => [loop("lookout", lookout.lastAnsweredAt)];
  return startGateway({
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
      examine: role.operator === true ? (tenant) => examine(db, tenant) : null,
    }),
    log: role.log,
    progress,
  });
}

function loop(name: string, at: number | null): LoopProgress {
  const age = at === null ? null : Math.round(monotonicMs() - at);
  return {
    name,
    progressing: age !== null && age < stuckMs,
    detail: age === null ? "has not turned yet" : `turned ${age} ms ago`,
  };
}
