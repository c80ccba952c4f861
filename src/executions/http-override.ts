import { Type } from "typebox";
import { brandId, type JobId, type SandboxId } from "../core/ids.ts";
import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { command, sendAnswer } from "../http/idempotency.ts";
import { problems } from "../http/openapi.ts";
import { AttemptView, StopOverride, Uuid } from "../wire/job.ts";
import { inspectAttempt } from "./inspect.store.ts";
import { declareStopped } from "./override.store.ts";

const SandboxParams = Type.Object(
  { id: Uuid, attempt: Type.String({ pattern: "^[12]$" }), sandbox: Uuid },
  { additionalProperties: false },
);

/** Only for a process whose login has the operator role. */
export function overrideRoute(server: GatewayServer, gateway: Gateway): void {
  server.post(
    "/v1/jobs/:id/attempts/:attempt/sandboxes/:sandbox(^[^:/]+)::confirm-stopped",
    {
      config: { scope: "operator" },
      schema: {
        operationId: "confirmStopped",
        summary: "Declare a sandbox stopped whose stop nothing can prove: its slot comes back",
        tags: ["jobs"],
        params: SandboxParams,
        body: StopOverride,
        response: { 200: AttemptView, ...problems(400, 401, 403, 404, 409, 413, 415) },
      },
    },
    async (request, reply) => {
      const { id, attempt, sandbox } = request.params;
      const job = brandId<JobId>(id);
      const ordinal = Number(attempt);
      const mutation = {
        schema: "jobs.confirm-stopped.v1",
        operation: "jobs.confirm-stopped",
        target: `/v1/jobs/${id}/attempts/${attempt}/sandboxes/${sandbox}`,
        role: "operator",
      } as const;
      const declared = await command(gateway, request, mutation, async (tx) => {
        await declareStopped(tx, {
          job,
          ordinal,
          sandbox: brandId<SandboxId>(sandbox),
          principal: principalOf(request).id,
          reason: request.body.reason,
        });
        return { status: 200, body: await inspectAttempt(tx, job, ordinal), etag: null };
      });
      return sendAnswer(reply, declared);
    },
  );
}
