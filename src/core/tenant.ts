import { createHash, randomBytes } from "node:crypto";

/**
 * What a token may do: a capability and a verb. `*` is everything of its tenant. `operator` sees the
 * installation, over all tenants, and is no part of `*`.
 */
export const scopes = ["jobs:read", "jobs:write", "watch:read", "*", "operator"] as const;
export type Scope = (typeof scopes)[number];

export function isScope(text: string): text is Scope {
  return (scopes as readonly string[]).includes(text);
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
