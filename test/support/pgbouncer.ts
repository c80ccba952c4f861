import { spawn } from "node:child_process";
import { accessSync, chownSync, constants, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { Client } from "pg";
import type { ConnectionSettings } from "../../src/core/postgres/settings.ts";
import { serverAccount } from "../../src/dev/postgres/account.ts";
import { until } from "./until.ts";

/** The program, where this machine has it; distributions keep it out of an ordinary PATH. */
export function findPgbouncer(): string | null {
  const folders = [...(process.env["PATH"] ?? "").split(delimiter), "/usr/sbin", "/usr/local/sbin"];
  for (const folder of folders) {
    const path = join(folder, "pgbouncer");
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Not there.
    }
  }
  return null;
}

/** One of its own, in transaction mode with few connections, on a socket before the server's. */
export async function startPgbouncer(
  scope: { readonly after: (hook: () => Promise<void>) => void },
  program: string,
  server: ConnectionSettings,
  logins: readonly string[],
): Promise<ConnectionSettings> {
  const directory = await mkdtemp(join(tmpdir(), "holdfast-pgbouncer-"));
  const account = serverAccount(directory);
  const port = 6432;
  const files = {
    "pgbouncer.ini": `[databases]
${server.database} = host=${server.host} port=${server.port} dbname=${server.database}
[pgbouncer]
listen_addr =
listen_port = ${port}
unix_socket_dir = ${directory}
auth_type = plain
auth_file = ${join(directory, "users.txt")}
pool_mode = transaction
default_pool_size = 3
logfile = ${join(directory, "log")}
pidfile =
`,
    "users.txt": logins.map((login) => `"${login}" "${server.password}"\n`).join(""),
  };
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(directory, name), text, { mode: 0o600 });
    if (account !== null) chownSync(join(directory, name), account.uid, account.gid);
  }
  if (account !== null) chownSync(directory, account.uid, account.gid);
  const child = spawn(program, ["--quiet", join(directory, "pgbouncer.ini")], {
    stdio: "ignore",
    cwd: "/",
    ...account,
  });
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  scope.after(async () => {
    child.kill("SIGKILL");
    await ended;
    await rm(directory, { recursive: true, force: true });
  });
  const settings = { ...server, host: directory, port };
  await until("the pooler answers", async () => {
    const client = new Client({ ...settings, user: logins[0] });
    client.on("error", () => undefined);
    try {
      await client.connect();
      await client.end();
      return true;
    } catch {
      return false;
    }
  });
  return settings;
}
