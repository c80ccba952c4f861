import { parseNetwork } from "../../src/core/egress/address.ts";
import { openEgress } from "../../src/core/egress/egress.ts";
import type { RetryPolicy } from "../../src/core/outbox.ts";
import { seconds } from "../../src/core/time.ts";
import { type Publisher, type PublisherOptions, startPublisher } from "../../src/deliveries/publisher.ts";
import type { Foundation } from "../../src/main/process.ts";
import type { StackScope } from "./stack.ts";

/** Tries follow each other at once, so that a test need not wait. */
export const hastyTries: RetryPolicy = { first: seconds(0.02), max: seconds(0.1), triesMax: 4 };

export const loopbackEgress = () => openEgress({ allowed: [parseNetwork("127.0.0.1")] });

/** A publisher on a foundation, which may call this host. */
export function openPublisher(
  scope: StackScope,
  { db, holder, lookout, keeper, leaseUs }: Foundation,
  options: Partial<PublisherOptions> = {},
): Publisher {
  const publisher = startPublisher({
    db,
    holder,
    lookout,
    keeper,
    leaseUs,
    egress: loopbackEgress(),
    keys: () => Promise.resolve([]),
    timeoutMs: 5_000,
    settling: { policy: hastyTries },
    drainMs: 0,
    log: () => undefined,
    ...options,
  });
  scope.after(() => publisher.stop());
  return publisher;
}
