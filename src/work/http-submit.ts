import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { command, sendAnswer } from "../http/idempotency.ts";
import { problems } from "../http/openapi.ts";
import {
  WorkBatch as Batch,
  type WorkBatch,
  WorkReceipt,
  WorkReceipts,
  WorkSubmission,
} from "../wire/work.ts";
import { acceptWork } from "./accept.store.ts";

const refusals = problems(400, 401, 403, 409, 413, 415);

/** Submitting without the code: by the terms that the version's workers registered. */
export function submitRoutes(server: GatewayServer, gateway: Gateway): void {
  server.post(
    "/v1/work",
    {
      config: { scope: "work:write" },
      schema: {
        operationId: "submitWork",
        summary: "Accept one item of a registered version, once by its id and key",
        tags: ["work"],
        body: WorkSubmission,
        response: {
          201: WorkReceipt,
          /** An identical request was accepted before, and this is its item. */
          200: WorkReceipt,
          ...refusals,
        },
      },
    },
    async (request, reply) => {
      const { name, version, ...item } = request.body;
      const mutation = { schema: "work.submit.v1", operation: "work.submit", target: "/v1/work" };
      const accepted = await command(gateway, request, mutation, async (tx) => {
        const [receipt] = await acceptWork(tx, askedBy(request, { name, version, items: [item] }, true));
        if (receipt === undefined) throw new Error("one item gives one answer");
        return { status: receipt.duplicate ? 200 : 201, body: receipt, etag: null };
      });
      void reply.header("location", `/v1/work/${(accepted.body as WorkReceipt).id}`);
      return sendAnswer(reply, accepted);
    },
  );
  server.post(
    "/v1/work::batch",
    {
      config: { scope: "work:write" },
      schema: {
        operationId: "submitWorkBatch",
        summary: "Accept up to 500 items of one version: all of them, or none",
        tags: ["work"],
        body: Batch,
        response: { 201: WorkReceipts, ...refusals },
      },
    },
    async (request, reply) => {
      const mutation = {
        schema: "work.submit-batch.v1",
        operation: "work.submit-batch",
        target: "/v1/work",
      };
      const accepted = await command(gateway, request, mutation, async (tx) => ({
        status: 201,
        body: { items: await acceptWork(tx, askedBy(request, request.body)) },
        etag: null,
      }));
      return sendAnswer(reply, accepted);
    },
  );
}

type Caller = Parameters<typeof principalOf>[0] & { readonly traceparent: string | null };

const askedBy = (request: Caller, asked: WorkBatch, alone = false) => ({
  ...asked,
  alone,
  tenant: principalOf(request).tenant,
  traceparent: request.traceparent,
});
