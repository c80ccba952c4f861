import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import type { ConnectionSettings } from "../core/postgres/pool.ts";

/** Where the database is: `url` for the driver's own parser, the rest for the pools. Both say the same. */
export interface DatabaseAddress extends ConnectionSettings {
  readonly url: string;
}

/**
 * `postgres://user:password@host:port/database?sslmode=…&host=/socket/directory&sslrootcert=FILE&password_file=FILE`,
 * and `pooler=transaction` where a pooler in transaction mode answers. Nothing of
 * it is repeated in an error, since any part may be the password that was not escaped.
 */
export function postgresUrl(text: string): DatabaseAddress {
  // A URL has no user without a host, but a socket's address has: `postgres://user@/database?host=/run/pg`.
  const url = URL.parse(text.replace(/^(postgres(?:ql)?:\/\/[^/?#]*@)\//, "$1socket/"));
  if (url === null || !["postgres:", "postgresql:"].includes(url.protocol)) {
    throw new Error("must be postgres://USER:PASSWORD@HOST:PORT/DATABASE, with special characters as %XX");
  }
  const unknown = [...url.searchParams.keys()].filter((name) => !parameters.includes(name));
  if (unknown.length > 0) throw new Error(`takes only the parameters ${parameters.join(", ")}`);
  const host = url.searchParams.get("host") ?? url.hostname.replace(/^\[(.*)\]$/, "$1");
  const database = decoded(url.pathname.slice(1));
  const user = decoded(url.username);
  if (host === "" || user === "" || database === "" || database.includes("/")) {
    throw new Error("must name a user, a host and a database");
  }
  const mode = url.searchParams.get("sslmode") ?? (isLocal(host) ? "disable" : "verify-full");
  const tls = tlsOf(mode, url.searchParams.get("sslrootcert"));
  const passwordFile = url.searchParams.get("password_file");
  if (passwordFile !== null && url.password !== "") {
    throw new Error("has a password and a password_file; keep one of them");
  }
  const pooler = url.searchParams.get("pooler");
  if (pooler !== null && pooler !== "transaction") throw new Error("takes pooler=transaction");
  // The driver calls "encrypt, but verify nothing" no-verify.
  url.searchParams.set("sslmode", mode === "require" ? "no-verify" : mode);
  return {
    url: url.href,
    host,
    port: url.port === "" ? 5432 : Number(url.port),
    database,
    user,
    password: decoded(url.password),
    ...(passwordFile === null ? {} : { passwordFile: resolve(passwordFile) }),
    ...(tls === undefined ? {} : { tls }),
    ...(pooler === null ? {} : { pooler: "transaction" as const }),
  };
}

const parameters = ["host", "sslmode", "sslrootcert", "password_file", "pooler"];

function tlsOf(mode: string, rootFile: string | null): ConnectionSettings["tls"] | undefined {
  switch (mode) {
    case "disable":
      return undefined;
    case "require":
      return { rejectUnauthorized: false };
    case "verify-full":
      return {
        rejectUnauthorized: true,
        ...(rootFile === null ? {} : { ca: readFileSync(rootFile, "utf8") }),
      };
    default:
      throw new Error("takes sslmode=disable, sslmode=require or sslmode=verify-full");
  }
}

function isLocal(host: string): boolean {
  return host.startsWith("/") || host === "localhost" || host === "::1" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new Error("must be a URL with special characters as %XX");
  }
}
