import type { BlobStore } from "../core/blob.port.ts";
import type { TenantId } from "../core/ids.ts";
import { deliveryRoutes } from "../deliveries/http.ts";
import { jobRoutes } from "../executions/http.ts";
import { overrideRoute } from "../executions/http-override.ts";
import { doctorRoute } from "../http/doctor.ts";
import type { Routes } from "../http/gateway.ts";
import type { LoopProgress } from "../http/health.ts";
import { cloudSessionRoutes } from "../sessions/http.ts";
import type { DoctorReport } from "../wire/doctor.ts";
import { workOperatorRoutes, workRoutes } from "../work/http.ts";
import { overviewRoutes } from "./http.ts";

/** What the routes of all capabilities work with. */
export interface ApiParts {
  readonly blobs: BlobStore;
  readonly queueMax: number;
  /** Where the sandboxes of agents are whose template names no runtime. */
  readonly runtime?: string;
  /** How many activations of one session may be unfinished. */
  readonly activationQueueMax?: number;
  /** How the loops of the process get on. */
  readonly progress?: () => readonly LoopProgress[];
  /** Null: no routes of operators, whose process needs the operator role. */
  readonly examine: ((tenant: TenantId | null) => Promise<DoctorReport>) | null;
}

const activationQueueMaxDefault = 100;

/** Every capability's routes: what a gateway serves, the document describes, and the tests go through (G15). */
export function apiRoutes(parts: ApiParts): readonly Routes[] {
  const { blobs, queueMax, examine } = parts;
  const activations = parts.activationQueueMax ?? activationQueueMaxDefault;
  return [
    jobRoutes({ blobs, queueMax }),
    cloudSessionRoutes({ blobs, defaultRuntime: parts.runtime ?? "process", queueMax: activations }),
    deliveryRoutes,
    workRoutes,
    overviewRoutes(parts.progress ?? (() => [])),
    ...(examine === null ? [] : [doctorRoute(examine), overrideRoute, workOperatorRoutes]),
  ];
}
