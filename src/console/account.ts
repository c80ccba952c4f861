import { signal } from "@preact/signals";
import { unreachable } from "../client/api-error.ts";
import { ApiError, type Client, createClient } from "../client/client.ts";
import { learnClock } from "./clock.ts";

/** Whoever signed in, and what they may do. */
export interface Account {
  readonly tenant: string;
  readonly principal: string;
  readonly scopes: readonly string[];
  readonly expires_at: string;
}

export type SignIn =
  | { readonly state: "looking" }
  /** The server could not say. */
  | { readonly state: "unknown"; readonly error: ApiError }
  /** `why`: what ended the one before. */
  | { readonly state: "out"; readonly why: "expired" | null }
  | { readonly state: "in"; readonly account: Account };

export const signIn = signal<SignIn>({ state: "looking" });

/**
 * One half of the sign-in. The token itself is in a cookie that scripts can't read, sealed with this key: the key
 * alone opens nothing. It is kept for all tabs, because the cookie is theirs together.
 */
const keyName = "holdfast.console.key";
const header = "x-holdfast-console";
const sessionPath = "/console/session";

function withKey(headers: HeadersInit | undefined): Headers {
  const all = new Headers(headers);
  const key = localStorage.getItem(keyName);
  if (key !== null) all.set(header, key);
  return all;
}

async function send(input: RequestInfo | URL, init: RequestInit = {}): Promise<Response> {
  const response = await fetch(input, { ...init, headers: withKey(init.headers), cache: "no-store" });
  learnClock(response.headers.get("date"));
  if (response.status === 401) lapse();
  return response;
}

/** The token has expired or was revoked, wherever that was seen. */
export function lapse(): void {
  if (signIn.peek().state !== "in") return;
  localStorage.removeItem(keyName);
  signIn.value = { state: "out", why: "expired" };
}

export const client: Client = createClient({
  url: location.origin,
  fetch: send,
  retry: { triesMax: 3 },
});

/** For the one stream of changes, whose breaks are shown instead of hidden. `opened` when it was let in. */
export const watcher = (opened: () => void): Client =>
  createClient({
    url: location.origin,
    fetch: async (input, init) => {
      const response = await send(input, init);
      if (response.ok) opened();
      return response;
    },
    retry: { triesMax: 1 },
    streamRetry: { triesMax: 1 },
    silenceMs: 40_000,
  });

/** Whether the browser is signed in already. */
export async function resume(): Promise<void> {
  signIn.value = { state: "looking" };
  try {
    await look();
  } catch (error) {
    const refused = error instanceof ApiError ? error : null;
    signIn.value = { state: "unknown", error: refused ?? unreachable(location.href, error) };
  }
}

async function look(): Promise<void> {
  if (localStorage.getItem(keyName) === null) {
    signIn.value = { state: "out", why: null };
    return;
  }
  const response = await fetch(sessionPath, { headers: withKey(undefined), cache: "no-store" });
  if (response.ok) signIn.value = { state: "in", account: (await response.json()) as Account };
  else if (response.status === 401) signIn.value = { state: "out", why: "expired" };
  else throw await refusal(response);
}

/** Throws an `ApiError`. */
export async function enter(token: string): Promise<void> {
  const response = await fetch(sessionPath, {
    method: "POST",
    headers: { authorization: `Bearer ${token}` },
    cache: "no-store",
  });
  if (!response.ok) throw await refusal(response);
  const { key, ...account } = (await response.json()) as Account & { readonly key: string };
  localStorage.setItem(keyName, key);
  signIn.value = { state: "in", account };
}

export async function leave(): Promise<void> {
  signIn.value = { state: "out", why: null };
  localStorage.removeItem(keyName);
  await fetch(sessionPath, { method: "DELETE" }).catch(() => undefined);
}

async function refusal(response: Response): Promise<ApiError> {
  const problem = (await response.json().catch(() => ({}))) as { code?: string; detail?: string };
  return new ApiError({
    code: problem.code ?? "unexpected_answer",
    status: response.status,
    detail: problem.detail ?? `HTTP ${response.status}`,
  });
}

/** Whether the token has a scope on the whole of its tenant. What is narrower is for the server to judge. */
export function may(scope: string): boolean {
  const { value } = signIn;
  if (value.state !== "in") return false;
  const { scopes } = value.account;
  return scopes.includes(scope) || (scope !== "operator" && scopes.includes("*"));
}
