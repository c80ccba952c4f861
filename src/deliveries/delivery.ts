import type { EgressReason } from "../core/egress/egress.ts";
import type { Delivery, Publication } from "../core/outbox.store.ts";
import { formatInstant, type Microseconds, seconds } from "../core/time.ts";

/** The body of every try, the same bytes each time: docs/reference/webhooks.md. */
export function bodyOf(publication: Publication): Buffer {
  const { id, source, session, destination, createdAt, payload } = publication;
  return Buffer.from(
    JSON.stringify({
      id,
      type: `${source.kind}.reply`,
      created_at: formatInstant(createdAt),
      session_id: session,
      destination,
      data: payload,
    }),
  );
}

/** 410 says that nobody will ever be there again. Everything else may be mended, by the receiver or by time. */
const gone = 410;

/** What an answer means (S8): 2xx is a receipt. */
export function deliveryOf(
  answer: { readonly status: number; readonly headers: Readonly<Record<string, unknown>> },
  nowMs: number,
): Delivery {
  const { status } = answer;
  if (status >= 200 && status < 300) return { delivered: true, status };
  const retryAfter = retryAfterOf(answer.headers["retry-after"], nowMs);
  return {
    delivered: false,
    status,
    error: `The destination answered ${status}.`,
    final: status === gone,
    ...(retryAfter === null ? {} : { retryAfter }),
  };
}

/** What a call without an answer means. */
export function refusedDelivery(reason: EgressReason, detail: string): Delivery {
  return { delivered: false, error: `${sentences[reason]}: ${detail}.` };
}

const sentences: Readonly<Record<EgressReason, string>> = {
  url: "The URL may not be called",
  address: "The address may not be called",
  unresolved: "The destination was not found",
  unreachable: "The destination was not reached",
  redirect: "The destination wants to be found elsewhere",
  too_large: "The answer was too large",
  timeout: "The destination did not answer in time",
};

/** Seconds, or a date; null when it is neither. */
function retryAfterOf(header: unknown, nowMs: number): Microseconds | null {
  if (typeof header !== "string") return null;
  if (/^\d{1,9}$/.test(header)) return seconds(Number(header));
  const at = Date.parse(header);
  return Number.isNaN(at) || at <= nowMs ? null : seconds(Math.ceil((at - nowMs) / 1000));
}
