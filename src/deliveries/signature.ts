import { createHmac } from "node:crypto";

/** The headers of a delivery, documented in docs/reference/webhooks.md. */
export const deliveryHeaders = {
  id: "webhook-id",
  timestamp: "webhook-timestamp",
  signature: "webhook-signature",
} as const;

/**
 * What the receiver verifies: an HMAC-SHA256 over id, time and body. With two keys there are two signatures, so that
 * receivers can change from one key to the other at any time. Without a key there is none.
 */
export function signedHeaders(delivery: {
  readonly id: string;
  /** Of this try, in whole seconds. */
  readonly at: number;
  readonly body: Buffer;
  readonly keys: readonly Buffer[];
}): Record<string, string> {
  const { id, at, body, keys } = delivery;
  const signatures = keys.map((key) => {
    const mac = createHmac("sha256", key).update(`${id}.${at}.`).update(body);
    return `v1,${mac.digest("base64")}`;
  });
  return {
    [deliveryHeaders.id]: id,
    [deliveryHeaders.timestamp]: String(at),
    ...(signatures.length === 0 ? {} : { [deliveryHeaders.signature]: signatures.join(" ") }),
  };
}
