import { createHash, randomBytes } from "node:crypto";

/**
 * What a credential may do: a capability and a verb. `*` is everything of its tenant. `operator` sees the
 * installation, over all tenants, and is no part of `*`.
 */
export const scopes = [
  "jobs:read",
  "jobs:write",
  "agents:read",
  "agents:write",
  "sessions:read",
  "sessions:write",
  "deliveries:read",
  "deliveries:write",
  "work:read",
  "work:write",
  "work:operate",
  "work:payload",
  "watch:read",
  "commands:read",
  "system:read",
  "*",
  "operator",
] as const;
export type Scope = (typeof scopes)[number];

/** A scope, or one narrowed to a single resource: `jobs:read:ID`. */
export type GrantedScope = Scope | `${string}:${string}:${string}`;

const resourceName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

export function isScope(text: string): text is Scope {
  return (scopes as readonly string[]).includes(text);
}

export function isGrantedScope(text: string): text is GrantedScope {
  if (isScope(text)) return true;
  const [capability, verb, resource = "", ...rest] = text.split(":");
  return rest.length === 0 && isScope(`${capability}:${verb}`) && resourceName.test(resource);
}

/** Whether what was granted covers a scope, on the whole or on this one resource. */
export function covers(granted: ReadonlySet<string>, scope: Scope, resource: string | null): boolean {
  if (granted.has(scope)) return true;
  if (scope !== "operator" && granted.has("*")) return true;
  return resource !== null && granted.has(`${scope}:${resource}`);
}

/** `hft_` and 32 random bytes in base64url. The prefix lets scanners of published code find leaked ones. */
export function mintToken(): string {
  return `hft_${randomBytes(32).toString("base64url")}`;
}

const tokenPattern = /^hft_[A-Za-z0-9_-]{43}$/;

export function isToken(text: string): boolean {
  return tokenPattern.test(text);
}

/** What is stored. A plain digest is enough: nobody guesses 256 random bits. */
export function hashToken(token: string): Buffer {
  return createHash("sha256").update(token).digest();
}
