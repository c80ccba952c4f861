import type { PostgresConnection } from "../../src/dev/postgres/server.ts";

/** As a deployment's configuration has it. */
export function urlOf({ user, password, database, host, port }: PostgresConnection): string {
  const url = new URL(`postgresql://localhost:${String(port)}/${database}`);
  url.username = user;
  url.password = password;
  url.searchParams.set("host", host);
  return url.href;
}
