import type { Invariant } from "../core/invariant.ts";
import { kernelInvariants } from "../core/invariants.ts";
import { executionInvariants } from "../executions/invariants.ts";
import { sandboxInvariants } from "../sandboxes/invariants.ts";

/** Everything that is always true of a store. */
export const allInvariants: readonly Invariant[] = [
  ...kernelInvariants,
  ...sandboxInvariants,
  ...executionInvariants,
];
