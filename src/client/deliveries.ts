import type { DeliveryDetail, DeliveryState, DeliveryView } from "../wire/delivery.ts";
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

export interface DeliveryPage {
  readonly items: readonly DeliveryView[];
  readonly next_page_token: string | null;
}

/** The deliveries that fit a filter, newest first: all of them by iterating, or page by page. */
export interface DeliveryList extends AsyncIterable<DeliveryView> {
  page(token?: string): Promise<DeliveryPage>;
}

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
    listDeliveries: (filter = {}) => listDeliveries(transport, filter),
    getDelivery: async (id, { signal } = {}) =>
      (await transport.json<DeliveryDetail>({ path: pathOf(id), signal })).value,
    redeliver: async (id, { idempotencyKey, signal } = {}) => {
      const headers = idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey };
      const path = `${pathOf(id)}:redeliver`;
      return (await transport.json<DeliveryView>({ method: "POST", path, body: {}, headers, signal })).value;
    },
  };
}

function listDeliveries(transport: Transport, filter: DeliveryFilter): DeliveryList {
  const { signal, state, session, destination, limit } = filter;
  const page = async (token?: string): Promise<DeliveryPage> => {
    const query = { state, session, destination, limit, page_token: token };
    return (await transport.json<DeliveryPage>({ path: "/v1/deliveries", query, signal })).value;
  };
  return {
    page,
    async *[Symbol.asyncIterator]() {
      let token: string | undefined;
      do {
        const { items, next_page_token } = await page(token);
        yield* items;
        token = next_page_token ?? undefined;
      } while (token !== undefined);
    },
  };
}
