import type { FastifyRequest } from "fastify";
import { type Transaction, view } from "../core/postgres/transition.ts";
import { type Gateway, principalOf } from "./gateway.ts";

/** One look under the principal's tenant. */
export function look<T>(
  gateway: Gateway,
  request: Pick<FastifyRequest, "principal" | "routeOptions">,
  body: (tx: Transaction) => Promise<T>,
): Promise<T> {
  const { tenant } = principalOf(request);
  return view(gateway.db, { role: "gateway", tenant, name: request.routeOptions.url ?? "look" }, body);
}
