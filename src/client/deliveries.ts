import type { DeliveryDetail, DeliveryState, DeliveryView } from "../wire/delivery.ts";
import { type Pages, pages } from "./pages.ts";
import type { CallOptions, Transport } from "./transport.ts";

export interface DeliveryFilter extends CallOptions {
  readonly state?: DeliveryState | undefined;
  /** Of this session. */
  readonly session?: string | undefined;
  /** `inbox`: those that nobody is called for. */
  readonly destination?: string | undefined;
  /** Deliveries of a page. */
  readonly limit?: number | undefined;
}

/** Newest first. */
export type DeliveryList = Pages<DeliveryView>;

export interface DeliveryCalls {
  listDeliveries(filter?: DeliveryFilter): DeliveryList;
  getDelivery(id: string, options?: CallOptions): Promise<DeliveryDetail>;
  /** A dead one is tried again, under the same id. */
  redeliver(
    id: string,
    options?: CallOptions & { readonly idempotencyKey?: string | undefined },
  ): Promise<DeliveryView>;
}

export function deliveryCalls(transport: Transport): DeliveryCalls {
  const pathOf = (id: string) => `/v1/deliveries/${encodeURIComponent(id)}`;
  return {
    listDeliveries: ({ state, session, destination, limit, signal } = {}) =>
      pages(transport, { path: "/v1/deliveries", query: { state, session, destination, limit }, signal }),
    getDelivery: async (id, { signal } = {}) =>
      (await transport.json<DeliveryDetail>({ path: pathOf(id), signal })).value,
    redeliver: async (id, { idempotencyKey, signal } = {}) => {
      const headers = idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey };
      const path = `${pathOf(id)}:redeliver`;
      return (await transport.json<DeliveryView>({ method: "POST", path, body: {}, headers, signal })).value;
    },
  };
}
