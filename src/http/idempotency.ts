import type { FastifyReply, FastifyRequest } from "fastify";
import { runCommand } from "../core/command.store.ts";
import { type Answer, fingerprintOf } from "../core/command.ts";
import { HoldfastError } from "../core/errors.ts";
import { type Transaction, transition } from "../core/postgres/transition.ts";
import { type Gateway, principalOf } from "./gateway.ts";
import { parseIfNoneMatch } from "./preconditions.ts";

const keyPattern = /^[\x21-\x7e]{1,255}$/;

function idempotencyKey(request: FastifyRequest): string | null {
  const key = request.headers["idempotency-key"];
  if (key === undefined) return null;
  if (typeof key === "string" && keyPattern.test(key)) return key;
  throw new HoldfastError("invalid_idempotency_key", "the key is 1 to 255 visible ASCII characters");
}

export interface Mutation {
  /** The name and version of the body's shape. */
  readonly schema: string;
  readonly operation: string;
  /** The path of the resource that it is about. */
  readonly target: string;
  /** It makes a resource that wasn't there, or throws: `If-None-Match: *` is true of it. */
  readonly creates?: true;
  /** Operators' mutations need more than the gateway's own role. */
  readonly role?: "operator";
}

/**
 * The second half of the pipeline, the same for every mutation: replay → `mutate`, which authorises the
 * target, checks preconditions, then state. One transaction under the principal's tenant (G2, G3).
 */
export function command(
  gateway: Gateway,
  request: FastifyRequest,
  mutation: Mutation,
  mutate: (tx: Transaction) => Promise<Answer>,
): Promise<Answer & { readonly replayed: boolean }> {
  const principal = principalOf(request);
  const asked = {
    principal: principal.id,
    key: idempotencyKey(request),
    operation: mutation.operation,
    target: mutation.target,
    fingerprint: fingerprintOf({
      ...mutation,
      body: request.body,
      preconditions: {
        if_match: request.headers["if-match"] ?? null,
        if_none_match: request.headers["if-none-match"] ?? null,
      },
    }),
    requestId: request.id,
  };
  const scope = {
    role: mutation.role ?? "gateway",
    tenant: principal.tenant,
    name: mutation.operation,
    traceparent: request.traceparent,
  } as const;
  const absent = parseIfNoneMatch(request.headers["if-none-match"]);
  return transition(gateway.db, scope, (tx) =>
    runCommand(tx, asked, async () => {
      const answer = await mutate(tx);
      // It found what it changed, so there is one. Its writes go with the transaction.
      if (absent && mutation.creates !== true) {
        throw new HoldfastError("precondition_failed", "If-None-Match: there is one already");
      }
      return answer;
    }),
  );
}

export function sendAnswer(
  reply: FastifyReply,
  answer: Answer & { readonly replayed: boolean },
): FastifyReply {
  if (answer.etag !== null) void reply.header("etag", answer.etag);
  if (answer.replayed) void reply.header("idempotency-replayed", "true");
  return reply.code(answer.status).send(answer.body);
}
