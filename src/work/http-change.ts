import { Type } from "typebox";
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

type Verb = "cancel" | "resolve" | "release" | "requeue" | "suspend";

const Cancellation = Type.Union([WorkCancellation, Type.Null()]);

/**
 * What can be done to an item. Each is one command: who asked, for what, when, is in the audit. Each route is written out:
 * a function that is generic in a body's schema costs the compiler more than the rest of the program.
 */
export function workChangeRoutes(server: GatewayServer, gateway: Gateway): void {
  const cancel = route(
    "cancel",
    "work:write",
    "Ask for its end: at once where nothing has begun; what runs may still succeed. Never taken back",
  );
  server.post(
    pathOf("cancel"),
    { ...cancel, schema: { ...cancel.schema, body: Cancellation } },
    (request, reply) =>
      change({ gateway, request, reply, work: request.params.id }, "cancel", (tx, { work, by }) =>
        tx.run(cancelWork, { work, by, reason: request.body?.reason ?? "requested" }),
      ),
  );
  const settle = route(
    "resolve",
    "work:operate",
    "Settle the most recent unknown outcome by what somebody knows of it; opens no admission again",
  );
  server.post(
    pathOf("resolve"),
    { ...settle, schema: { ...settle.schema, body: WorkProof } },
    (request, reply) =>
      change({ gateway, request, reply, work: request.params.id }, "resolve", (tx, asked) =>
        resolve(tx, asked, request.body),
      ),
  );
  for (const [verb, summary, apply] of [
    [
      "release",
      "Put a suspended item back to its own time, never past its cutoff",
      (tx, { work, by }) => tx.run(resumeWork, { work, by, ending: "released" }),
    ],
    [
      "requeue",
      "Put a suspended item back, due at once where no plan says when; never past its cutoff",
      (tx, { work, by }) => tx.run(resumeWork, { work, by, ending: "requeued" }),
    ],
    [
      "suspend",
      "Take a waiting item out of its line, until it is released or requeued",
      (tx, { work, by }) => tx.run(suspendWork, { work, by }),
    ],
  ] as const satisfies readonly (readonly [Verb, string, Apply])[]) {
    const plain = route(verb, "work:operate", summary);
    server.post(pathOf(verb), { ...plain, schema: { ...plain.schema, body: NoBody } }, (request, reply) =>
      change({ gateway, request, reply, work: request.params.id }, verb, apply),
    );
  }
}

interface Exchange {
  readonly gateway: Gateway;
  readonly request: Parameters<typeof command>[1];
  readonly reply: Parameters<typeof sendAnswer>[0];
  readonly work: string;
}

type Apply = (tx: Transaction, asked: Asked) => Promise<unknown>;

const pathOf = (verb: Verb) => `/v1/work/:id(^[^:/]+)::${verb}`;

/** All of a route but its body. */
function route(verb: Verb, scope: "work:write" | "work:operate", summary: string) {
  return {
    config: { scope },
    schema: {
      operationId: `${verb}Work`,
      summary,
      tags: ["work"],
      params: WorkParams,
      response: { 202: WorkView, ...problems(400, 401, 403, 404, 409, 412, 413, 415) },
    },
  };
}

/** The proof is of the attempt that its giver looked at, when they say which. */
async function resolve(tx: Transaction, { tenant, work, by }: Asked, body: WorkProof): Promise<void> {
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

async function change({ gateway, request, reply, work }: Exchange, verb: Verb, apply: Apply) {
  const { tenant, name: by } = principalOf(request);
  const condition = parseIfMatch(request.headers["if-match"]);
  const mutation = {
    schema: `work.${verb}.v1`,
    operation: `work.${verb}`,
    target: `/v1/work/${work}`,
  };
  const changed = await command(gateway, request, mutation, async (tx) => {
    checkVersion(condition, await lockedRevision(tx, work));
    await apply(tx, { tenant, work, by });
    const view = workView(await readSummary(tx, work));
    return { status: 202, body: view, etag: etagOf(view.resource_version) };
  });
  return sendAnswer(reply, changed);
}
