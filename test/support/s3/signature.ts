import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";

/** Who may sign, and what time it is for the server. */
export interface Signer {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly region: string;
  readonly now: () => number;
}

export type Verdict =
  | { readonly signed: true; readonly payload: string }
  | {
      readonly signed: false;
      readonly code: "AccessDenied" | "SignatureDoesNotMatch" | "RequestTimeTooSkewed";
    };

interface Claim {
  readonly credential: string;
  readonly date: string;
  readonly signedHeaders: readonly string[];
  readonly signature: string;
  /** Null: signed in a header, so it is good for a quarter of an hour. */
  readonly expiresSeconds: number | null;
  readonly payload: string;
}

const skewMs = 15 * 60_000;

/** AWS Signature Version 4 as S3 reads it, in the header or in the URL. What is not signed is refused. */
export function verdictOf(request: IncomingMessage, signer: Signer): Verdict {
  const url = new URL(request.url ?? "/", "http://any");
  const claim = claimOf(request, url);
  if (claim === null) return { signed: false, code: "AccessDenied" };
  const [id, ...scope] = claim.credential.split("/");
  const day = claim.date.slice(0, 8);
  if (id !== signer.accessKeyId || scope.join("/") !== `${day}/${signer.region}/s3/aws4_request`) {
    return { signed: false, code: "SignatureDoesNotMatch" };
  }
  const headers = Object.keys(request.headers);
  const needed = headers.filter((name) => name === "host" || name.startsWith("x-amz-"));
  if (needed.some((name) => !claim.signedHeaders.includes(name)))
    return { signed: false, code: "AccessDenied" };
  const expected = signatureOf(request, url, claim, signer);
  const given = Buffer.from(claim.signature);
  if (given.length !== expected.length || !timingSafeEqual(given, Buffer.from(expected))) {
    return { signed: false, code: "SignatureDoesNotMatch" };
  }
  const age = signer.now() - timeOf(claim.date);
  if (claim.expiresSeconds === null) {
    return Math.abs(age) <= skewMs
      ? { signed: true, payload: claim.payload }
      : { signed: false, code: "RequestTimeTooSkewed" };
  }
  const fresh = age >= -skewMs && age < claim.expiresSeconds * 1000;
  return fresh ? { signed: true, payload: claim.payload } : { signed: false, code: "AccessDenied" };
}

function claimOf(request: IncomingMessage, url: URL): Claim | null {
  const query = url.searchParams;
  const header = request.headers.authorization;
  const payload = request.headers["x-amz-content-sha256"];
  if (header !== undefined) {
    const match =
      /^AWS4-HMAC-SHA256 Credential=([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/.exec(header);
    const date = request.headers["x-amz-date"];
    if (match === null || typeof date !== "string" || typeof payload !== "string") return null;
    const [, credential = "", signed = "", signature = ""] = match;
    return { credential, date, signedHeaders: signed.split(";"), signature, expiresSeconds: null, payload };
  }
  if (query.get("X-Amz-Algorithm") !== "AWS4-HMAC-SHA256") return null;
  const expires = Number(query.get("X-Amz-Expires"));
  if (!Number.isInteger(expires) || expires < 1 || expires > 604_800) return null;
  return {
    credential: query.get("X-Amz-Credential") ?? "",
    date: query.get("X-Amz-Date") ?? "",
    signedHeaders: (query.get("X-Amz-SignedHeaders") ?? "").split(";"),
    signature: query.get("X-Amz-Signature") ?? "",
    expiresSeconds: expires,
    payload: "UNSIGNED-PAYLOAD",
  };
}

function signatureOf(request: IncomingMessage, url: URL, claim: Claim, signer: Signer): string {
  const query = [...url.searchParams]
    .filter(([name]) => name !== "X-Amz-Signature")
    .map(([name, value]) => `${encoded(name)}=${encoded(value)}`)
    .sort()
    .join("&");
  const headers = claim.signedHeaders.map(
    (name) => `${name}:${[request.headers[name] ?? ""].join().trim()}\n`,
  );
  const canonical = [
    request.method,
    url.pathname,
    query,
    headers.join(""),
    claim.signedHeaders.join(";"),
    claim.payload,
  ].join("\n");
  const scope = `${claim.date.slice(0, 8)}/${signer.region}/s3/aws4_request`;
  const digest = createHash("sha256").update(canonical).digest("hex");
  const key = scope.split("/").reduce<Buffer | string>(hmac, `AWS4${signer.secretAccessKey}`);
  return hmac(key, ["AWS4-HMAC-SHA256", claim.date, scope, digest].join("\n")).toString("hex");
}

function hmac(key: Buffer | string, text: string): Buffer {
  return createHmac("sha256", key).update(text).digest();
}

function encoded(text: string): string {
  return encodeURIComponent(text).replaceAll(
    /[!'()*]/g,
    (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/** `20261129T183000Z`. */
function timeOf(date: string): number {
  return Date.parse(date.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, "$1-$2-$3T$4:$5:$6Z"));
}
