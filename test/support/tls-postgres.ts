import { execFileSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { chmodSync, chownSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { serverAccount } from "../../src/dev/postgres/account.ts";
import { startPostgres } from "../../src/dev/postgres/server.ts";

/** Null where the machine has no openssl to make certificates with. */
export function hasOpenssl(): boolean {
  try {
    execFileSync("openssl", ["version"], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

export interface TlsPostgres {
  /** What the certificate is for, and another address of the same server. */
  readonly host: string;
  readonly otherHost: string;
  readonly port: number;
  readonly user: string;
  readonly password: string;
  /** The authority that signed the server's certificate, and one that did not. */
  readonly authority: string;
  readonly stranger: string;
}

/** A server on two loopback addresses of its own, with a certificate for the first of them alone. */
export async function startTlsPostgres(scope: {
  readonly after: (hook: () => Promise<void>) => void;
}): Promise<TlsPostgres> {
  const keys = await mkdtemp(join(tmpdir(), "holdfast-tls-"));
  scope.after(() => rm(keys, { recursive: true, force: true }));
  const at = (name: string) => join(keys, name);
  const openssl = (...words: string[]) => execFileSync("openssl", words, { stdio: "ignore", cwd: keys });
  for (const name of ["authority", "stranger"]) {
    openssl(
      "req",
      "-x509",
      "-newkey",
      "rsa:2048",
      "-nodes",
      "-days",
      "2",
      "-subj",
      `/CN=${name}`,
      "-keyout",
      `${name}.key`,
      "-out",
      `${name}.pem`,
    );
  }
  openssl(
    "req",
    "-newkey",
    "rsa:2048",
    "-nodes",
    "-subj",
    "/CN=server",
    "-keyout",
    "server.key",
    "-out",
    "server.csr",
  );
  const network = `127.${randomInt(1, 255)}.${randomInt(1, 255)}`;
  const [host, otherHost] = [`${network}.1`, `${network}.2`];
  writeFileSync(at("names"), `subjectAltName=IP:${host}\n`);
  openssl(
    "x509",
    "-req",
    "-in",
    "server.csr",
    "-CA",
    "authority.pem",
    "-CAkey",
    "authority.key",
    "-CAcreateserial",
    "-days",
    "2",
    "-extfile",
    "names",
    "-out",
    "server.pem",
  );
  const account = serverAccount(keys);
  for (const name of ["server.key", "server.pem"]) {
    chmodSync(at(name), 0o600);
    if (account !== null) chownSync(at(name), account.uid, account.gid);
  }
  chmodSync(keys, 0o755);
  const directory = await mkdtemp(join(tmpdir(), "holdfast-tls-data-"));
  const server = await startPostgres({
    directory,
    throwaway: true,
    settings: {
      fsync: "off",
      listen_addresses: `${host},${otherHost}`,
      ssl: "on",
      ssl_cert_file: at("server.pem"),
      ssl_key_file: at("server.key"),
    },
  });
  scope.after(() => server.stop());
  const { user, password, port } = server.connection;
  return {
    host,
    otherHost,
    port,
    user,
    password,
    authority: at("authority.pem"),
    stranger: at("stranger.pem"),
  };
}
