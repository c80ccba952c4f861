import type { BlobStore } from "../core/blob.port.ts";
import type { TenantId } from "../core/ids.ts";
import { jobRoutes } from "../executions/http.ts";
import { overrideRoute } from "../executions/http-override.ts";
import { doctorRoute } from "../http/doctor.ts";
import type { Routes } from "../http/gateway.ts";
import type { DoctorReport } from "../wire/doctor.ts";

/** What the routes of all capabilities work with. */
export interface ApiParts {
  readonly blobs: BlobStore;
  readonly queueMax: number;
  /** Null: no routes of operators, whose process needs the operator role. */
  readonly examine: ((tenant: TenantId | null) => Promise<DoctorReport>) | null;
}

/** Every capability's routes: what a gateway serves, the document describes, and the tests go through (G15). */
export function apiRoutes({ blobs, queueMax, examine }: ApiParts): readonly Routes[] {
  return [jobRoutes({ blobs, queueMax }), ...(examine === null ? [] : [doctorRoute(examine), overrideRoute])];
}
