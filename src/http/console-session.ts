import { createCipheriv, createDecipheriv, createHash, randomBytes } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { HoldfastError } from "../core/errors.ts";

/**
 * How a browser that signed in shows its token again. Sign-in seals the token with a key made for this browser
 * and keeps nothing: the sealed token goes into a cookie that no script can read, the key to the page, which
 * sends it in a header. Either half alone is worthless, so a cookie that other servers of the same host are sent
 * (cookies know no ports) tells them nothing, and a request that a page of another site makes lacks the key.
 * What is opened is the token itself: it expires, is revoked and is limited as in every other request.
 */
export const consoleHeader = "x-holdfast-console";

/** Cookies of servers on other ports of the same host are beside ours: each has a name of its own. */
const cookieName = (host: string) =>
  `holdfast_${createHash("sha256").update(host.toLowerCase()).digest("hex").slice(0, 16)}`;

const keyPattern = /^[A-Za-z0-9_-]{43}$/;
const nonceBytes = 12;
const tagBytes = 16;
/** Browsers keep no cookie of more than 4096 bytes. */
const sealedCharactersMax = 3_900;
const secondsMax = 12 * 3_600;

export interface SealedToken {
  /** For the page. */
  readonly key: string;
  /** `Set-Cookie`. */
  readonly cookie: string;
}

/** Throws `payload_too_large` for a token that fits no cookie. */
export function sealToken(
  token: string,
  { host, secure, seconds }: { readonly host: string; readonly secure: boolean; readonly seconds: number },
): SealedToken {
  const key = randomBytes(32);
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv("aes-256-gcm", key, nonce);
  cipher.setAAD(Buffer.from(cookieName(host)));
  const sealed = Buffer.concat([nonce, cipher.update(token, "utf8"), cipher.final(), cipher.getAuthTag()]);
  const value = sealed.toString("base64url");
  if (value.length > sealedCharactersMax) {
    throw new HoldfastError("payload_too_large", "the token is too long for a browser's cookie");
  }
  const age = Math.max(0, Math.min(secondsMax, Math.floor(seconds)));
  return { key: key.toString("base64url"), cookie: cookie(host, value, age, secure) };
}

/** `Set-Cookie` that takes it away. */
export const forgetToken = (host: string, secure: boolean): string => cookie(host, "", 0, secure);

function cookie(host: string, value: string, seconds: number, secure: boolean): string {
  const attributes = `Path=/; Max-Age=${seconds}; HttpOnly; SameSite=Strict`;
  return `${cookieName(host)}=${value}; ${attributes}${secure ? "; Secure" : ""}`;
}

/** The Authorization that a request of the console stands for; undefined when it is none, or a wrong one. */
export function openToken(headers: IncomingHttpHeaders): string | undefined {
  const { [consoleHeader]: key, host } = headers;
  if (typeof key !== "string" || !keyPattern.test(key) || host === undefined) return undefined;
  assertSameOrigin(headers);
  const value = cookieOf(headers.cookie ?? "", cookieName(host));
  if (value === null) return undefined;
  const sealed = Buffer.from(value, "base64url");
  if (sealed.length <= nonceBytes + tagBytes) return undefined;
  const cipher = createDecipheriv(
    "aes-256-gcm",
    Buffer.from(key, "base64url"),
    sealed.subarray(0, nonceBytes),
  );
  cipher.setAAD(Buffer.from(cookieName(host)));
  cipher.setAuthTag(sealed.subarray(-tagBytes));
  try {
    const token = Buffer.concat([cipher.update(sealed.subarray(nonceBytes, -tagBytes)), cipher.final()]);
    return `Bearer ${token.toString("utf8")}`;
  } catch {
    return undefined; // of another sign-in
  }
}

/** Browsers say where a request comes from; whatever else comes here says nothing. Throws `forbidden`. */
export function assertSameOrigin(headers: IncomingHttpHeaders): void {
  const { "sec-fetch-site": site, origin, host = "" } = headers;
  const foreign = site !== undefined && site !== "same-origin";
  if (foreign || (origin !== undefined && hostOf(origin) !== host.toLowerCase())) {
    throw new HoldfastError("forbidden", "the request comes from a page of another site");
  }
}

function hostOf(origin: string): string | null {
  return URL.canParse(origin) ? new URL(origin).host : null;
}

function cookieOf(header: string, name: string): string | null {
  for (const pair of header.split(";")) {
    const at = pair.indexOf("=");
    if (at !== -1 && pair.slice(0, at).trim() === name) return pair.slice(at + 1).trim();
  }
  return null;
}
