import { type Egress, EgressRefusal } from "../core/egress/egress.ts";
import type { TenantId } from "../core/ids.ts";
import type { Delivery, Publication } from "../core/outbox.store.ts";
import { assertOutsideTransition } from "../core/outside.ts";
import type { Target } from "./delivery.store.ts";
import { bodyOf, deliveryOf, refusedDelivery } from "./delivery.ts";
import { signedHeaders } from "./signature.ts";
import type { SigningKeys } from "./signing-keys.ts";

export interface Sender {
  readonly egress: Egress;
  readonly keys: SigningKeys;
  /** For everything: the look-up of the name, the connection, and the answer's status. */
  readonly timeoutMs: number;
}

/** Read of an answer's body before its connection is cut off. Nothing of it is kept. */
const answerBytesMax = 65_536;

/**
 * One try, outside of any transaction (S10). Everything that may go wrong is an outcome; it throws only when the
 * signal has aborted, and then nobody knows whether the destination heard of it.
 */
export async function send(
  { egress, keys, timeoutMs }: Sender,
  tenant: TenantId,
  publication: Publication,
  target: Target | null,
  signal: AbortSignal,
): Promise<Delivery> {
  assertOutsideTransition("deliver");
  const { id, destination } = publication;
  if (target === null) {
    const error = `No template of the session's agent names the destination ${destination}.`;
    return { delivered: false, error, final: true };
  }
  let signing: Buffer[];
  try {
    signing = await keys(tenant, target.keys);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return { delivered: false, error: `It can't be signed: ${why}.` };
  }
  const body = bodyOf(publication);
  const nowMs = Date.now();
  const signed = signedHeaders({ id, at: Math.floor(nowMs / 1000), body, keys: signing });
  try {
    const answer = await egress({
      method: "POST",
      url: target.url,
      headers: { "content-type": "application/json", "user-agent": "holdfast", ...signed },
      body,
      timeoutMs,
      answerBytesMax,
      bodiless: true,
      signal,
    });
    return deliveryOf(answer, nowMs);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof EgressRefusal) return refusedDelivery(error.reason, error.message);
    throw error;
  }
}
