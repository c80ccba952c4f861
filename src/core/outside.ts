import { AsyncLocalStorage } from "node:async_hooks";

/**
 * No transaction may be open while the outside world is called (S10): a slow pod or store would hold row
 * locks, and a retry of the transaction would repeat the effect. `transition` marks its async context, and
 * every adapter (runtime, blob store, destination) asserts, in production too, that it is called outside one.
 */
const transitions = new AsyncLocalStorage<{ readonly name: string } | undefined>();

export function insideTransition<T>(name: string, body: () => Promise<T>): Promise<T> {
  return transitions.run({ name }, body);
}

/** Throws when the caller's async context has a transition open. Adapters call it first, in each method. */
export function assertOutsideTransition(call: string): void {
  const open = transitions.getStore();
  if (open !== undefined) {
    throw new Error(`${call} was called while the transition "${open.name}" was open (S10)`);
  }
}
