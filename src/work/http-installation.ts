import { Type } from "typebox";
import { HoldfastError } from "../core/errors.ts";
import { brandId, type TenantId } from "../core/ids.ts";
import { formatInstant } from "../core/time.ts";
import type { Gateway, GatewayServer } from "../http/gateway.ts";
import { command, sendAnswer } from "../http/idempotency.ts";
import { problems } from "../http/openapi.ts";
import {
  DisabledTenant,
  RetiredVersion,
  TenantDisabling,
  TenantParams,
  WorkName,
  WorkVersionName,
} from "../wire/work.ts";
import { retireVersion } from "./version.sql.ts";
import { disableTenant } from "./work.sql.ts";
import { suspendDisabled } from "./work.store.ts";

const closed = { additionalProperties: false } as const;
const VersionParams = Type.Object({ name: WorkName, version: WorkVersionName }, closed);
const NoBody = Type.Union([Type.Object({}, closed), Type.Null()]);

/** What concerns more than the caller's own tenant: the scope `operator`, and a login that has the role. */
export function installationRoutes(server: GatewayServer, gateway: Gateway): void {
  retireRoute(server, gateway);
  disableRoute(server, gateway);
}

function retireRoute(server: GatewayServer, gateway: Gateway): void {
  server.post(
    "/v1/work-versions/:name/:version(^[^:/]+)::retire",
    {
      config: { scope: "operator" },
      schema: {
        operationId: "retireWorkVersion",
        summary: "Accept nothing new under a version; what is there drains. Again changes nothing",
        tags: ["work"],
        params: VersionParams,
        body: NoBody,
        response: { 200: RetiredVersion, ...problems(400, 401, 403, 404, 413, 415) },
      },
    },
    async (request, reply) => {
      const { name, version } = request.params;
      const mutation = {
        schema: "work-versions.retire.v1",
        operation: "work-versions.retire",
        target: `/v1/work-versions/${name}/${version}`,
        role: "operator",
      } as const;
      const retired = await command(gateway, request, mutation, async (tx) => {
        const row = await tx.run(retireVersion, { name, version });
        if (row === undefined) throw new HoldfastError("not_found", "there is no such version");
        const body = { name, version, retired_at: formatInstant(row.retired_at) };
        return { status: 200, body, etag: null };
      });
      return sendAnswer(reply, retired);
    },
  );
}

function disableRoute(server: GatewayServer, gateway: Gateway): void {
  server.post(
    "/v1/tenants/:tenant(^[^:/]+)::disable",
    {
      config: { scope: "operator" },
      schema: {
        operationId: "disableTenant",
        summary: "Disable a tenant for good: nothing of it is accepted any more, what waits is suspended",
        tags: ["tenants"],
        params: TenantParams,
        body: TenantDisabling,
        response: { 200: DisabledTenant, ...problems(400, 401, 403, 404, 409, 413, 415) },
      },
    },
    async (request, reply) => {
      const tenant = brandId<TenantId>(request.params.tenant);
      const mutation = {
        schema: "tenants.disable.v1",
        operation: "tenants.disable",
        target: `/v1/tenants/${tenant}`,
        role: "operator",
      } as const;
      const disabled = await command(gateway, request, mutation, async (tx) => {
        if (request.body.confirm !== tenant) {
          throw new HoldfastError("conflict", "`confirm` is not the tenant's name: nothing was done");
        }
        const row = await tx.run(disableTenant, { tenant });
        if (row === undefined) throw new HoldfastError("not_found", `there is no tenant ${tenant}`);
        const body = { tenant, disabled_at: formatInstant(row.disabled_at) };
        return { status: 200, body, etag: null };
      });
      // The fact is committed. What was under way without knowing it is waited for; then all that waits is suspended.
      // A replay does this again, so that a process which died in between leaves nothing behind.
      await suspendDisabled(gateway.db, tenant);
      return sendAnswer(reply, disabled);
    },
  );
}
