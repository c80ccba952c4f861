import { Type } from "typebox";
import { brandId, type TenantId } from "../core/ids.ts";
import { DoctorReport } from "../wire/doctor.ts";
import type { Routes } from "./gateway.ts";
import { problems } from "./openapi.ts";

const DoctorQuery = Type.Object(
  { tenant: Type.Optional(Type.String({ pattern: "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$" })) },
  { additionalProperties: false },
);

/**
 * The store's own report, over all tenants. Only for a process whose login has the operator role: the one of a
 * development store, whose database nobody else can reach.
 */
export function doctorRoute(examine: (tenant: TenantId | null) => Promise<DoctorReport>): Routes {
  return (server) => {
    server.get(
      "/v1/doctor",
      {
        config: { scope: "operator" },
        schema: {
          operationId: "doctor",
          summary: "Whether everything that is always true of this store is true",
          tags: ["server"],
          querystring: DoctorQuery,
          response: { 200: DoctorReport, ...problems(400, 401, 403, 404) },
        },
      },
      ({ query: { tenant } }) => examine(tenant === undefined ? null : brandId<TenantId>(tenant)),
    );
  };
}
