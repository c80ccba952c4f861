import { createHash } from "node:crypto";
import { canonicalText } from "../core/canonical.ts";
import { formatInstant, type Instant, type Microseconds } from "../core/time.ts";
import type { Policy } from "./policy.ts";

/**
 * What a submission asks for, and nothing that the server decides: never its acceptance time (W9). All of it has been
 * checked: JSON carries it without loss.
 */
export interface Request {
  readonly name: string;
  readonly version: string;
  readonly input: unknown;
  readonly queue: string | null;
  readonly priority: number;
  readonly delay: Microseconds;
  readonly providerKey: string | null;
  readonly circuitKey: string | null;
  readonly notAfter: Instant | null;
}

/**
 * The identity of a request's content, SHA-256 in hex. Legacy Work uses v1, whose bytes never change; opted-in
 * Work uses v2, which also covers the timing facts.
 */
export function fingerprint(request: Request, policy: Policy): string {
  const text = policy.kind === "legacy" ? fingerprintText1(request) : fingerprintText2(request, policy);
  return createHash("sha256").update(text).digest("hex");
}

/** The bytes of v1, RFC 8785. Frozen: fingerprint-v1.json holds vectors of them. */
export function fingerprintText1(request: Request): string {
  return canonicalText({ schema: "work-fingerprint-v1", ...content(request) });
}

/** Durations and instants are text: JSON's numbers end before theirs. */
export function fingerprintText2(request: Request, { plan, retry, elapsed, lease }: Policy): string {
  return canonicalText({
    schema: "work-fingerprint-v2",
    ...content(request),
    execution_policy_schema: "work-execution-v1",
    attempt_plan_version: plan?.version ?? null,
    attempt_plan_offsets: plan?.offsets.map(String) ?? null,
    maximum_circuit_microseconds: plan === null ? null : String(plan.circuit),
    attempts_max: retry.attempts,
    retry_initial_microseconds: String(retry.initial),
    retry_longest_microseconds: String(retry.longest),
    elapsed_max_microseconds: String(elapsed),
    lease_max_microseconds: String(lease),
    execution_not_after: request.notAfter === null ? null : formatInstant(request.notAfter),
  });
}

function content(request: Request): Record<string, unknown> {
  return {
    name: request.name,
    version: request.version,
    input: request.input,
    queue: request.queue,
    priority: request.priority,
    delay_microseconds: String(request.delay),
    provider_key: request.providerKey,
    circuit_key: request.circuitKey,
  };
}
