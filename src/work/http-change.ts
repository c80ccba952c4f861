import { type Static, Type } from "typebox";
import { HoldfastError } from "../core/errors.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import { type Gateway, type GatewayServer, principalOf } from "../http/gateway.ts";
import { command, sendAnswer } from "../http/idempotency.ts";
import { problems } from "../http/openapi.ts";
import { checkVersion, etagOf, parseIfMatch } from "../http/preconditions.ts";
import { WorkCancellation, WorkProof, WorkView } from "../wire/work.ts";
import { WorkParams } from "./http-read.ts";
import { lockedRevision, readSummary } from "./inspect.store.ts";
import { workView } from "./view.ts";
import { cancelWork, proveWork, readAttempts, resumeWork, suspendWork } from "./work.sql.ts";

const closed = { additionalProperties: false } as const;
const NoBody = Type.Union([Type.Object({}, closed), Type.Null()]);

interface Asked {
  readonly tenant: string;
  readonly work: string;
  readonly by: string;
}

interface Change<Body extends Type.TSchema> {
  readonly verb: "cancel" | "resolve" | "release" | "requeue" | "suspend";
  readonly scope: "work:write" | "work:operate";
  readonly summary: string;
  readonly body: Body;
  readonly apply: (tx: Transaction, asked: Asked & { readonly body: Static<Body> }) => Promise<unknown>;
}

/** What can be done to an item. Each is one command: who asked, for what, when, is in the audit. */
export function workChangeRoutes(server: GatewayServer, gateway: Gateway): void {
  changeRoute(server, gateway, {
    verb: "cancel",
    scope: "work:write",
    summary:
      "Ask for its end: at once where nothing has begun; what runs may still succeed. Never taken back",
    body: Type.Union([WorkCancellation, Type.Null()]),
    apply: (tx, { work, by, body }) => tx.run(cancelWork, { work, by, reason: body?.reason ?? "requested" }),
  });
  changeRoute(server, gateway, {
    verb: "resolve",
    scope: "work:operate",
    summary: "Settle the most recent unknown outcome by what somebody knows of it; opens no admission again",
    body: WorkProof,
    apply: resolve,
  });
  changeRoute(server, gateway, {
    verb: "release",
    scope: "work:operate",
    summary: "Put a suspended item back to its own time, never past its cutoff",
    body: NoBody,
    apply: (tx, { work, by }) => tx.run(resumeWork, { work, by, ending: "released" }),
  });
  changeRoute(server, gateway, {
    verb: "requeue",
    scope: "work:operate",
    summary: "Put a suspended item back, due at once where no plan says when; never past its cutoff",
    body: NoBody,
    apply: (tx, { work, by }) => tx.run(resumeWork, { work, by, ending: "requeued" }),
  });
  changeRoute(server, gateway, {
    verb: "suspend",
    scope: "work:operate",
    summary: "Take a waiting item out of its line, until it is released or requeued",
    body: NoBody,
    apply: (tx, { work, by }) => tx.run(suspendWork, { work, by }),
  });
}

/** The proof is of the attempt that its giver looked at, when they say which. */
async function resolve(
  tx: Transaction,
  { tenant, work, by, body }: Asked & { readonly body: WorkProof },
): Promise<void> {
  if (body.attempt !== undefined) {
    const unknown = (await tx.run(readAttempts, { work })).findLast(
      ({ outcome, verdict }) => outcome === "unknown" && verdict === null,
    );
    if (unknown?.attempt !== body.attempt)
      throw new HoldfastError("conflict", `attempt ${body.attempt} is not the last unknown one`);
  }
  await tx.run(proveWork, {
    tenant,
    work,
    verdict: body.verdict,
    source: "operator",
    by,
    note: body.note,
    result: body.verdict === "applied" ? (body.result ?? null) : null,
    epoch: null,
  });
}

function changeRoute<Body extends Type.TSchema>(
  server: GatewayServer,
  gateway: Gateway,
  { verb, scope, summary, body, apply }: Change<Body>,
): void {
  server.post(
    `/v1/work/:id(^[^:/]+)::${verb}`,
    {
      config: { scope },
      schema: {
        operationId: `${verb}Work`,
        summary,
        tags: ["work"],
        params: WorkParams,
        body,
        response: { 202: WorkView, ...problems(400, 401, 403, 404, 409, 412, 413, 415) },
      },
    },
    async (request, reply) => {
      const { id: work } = request.params;
      const { tenant, name: by } = principalOf(request);
      const condition = parseIfMatch(request.headers["if-match"]);
      const mutation = {
        schema: `work.${verb}.v1`,
        operation: `work.${verb}`,
        target: `/v1/work/${work}`,
      };
      const changed = await command(gateway, request, mutation, async (tx) => {
        checkVersion(condition, await lockedRevision(tx, work));
        await apply(tx, { tenant, work, by, body: request.body as Static<Body> });
        const view = workView(await readSummary(tx, work));
        return { status: 202, body: view, etag: etagOf(view.resource_version) };
      });
      return sendAnswer(reply, changed);
    },
  );
}
