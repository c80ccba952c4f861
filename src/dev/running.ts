import { existsSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { processIdentity } from "./directory-lock.mjs";
import { clusterData, readCluster, superuser } from "./postgres/cluster.ts";
import { readPidFile } from "./postgres/previous.ts";
import type { PostgresConnection } from "./postgres/server.ts";
import { database } from "./store.ts";

/**
 * The database of the development store that runs here or in a directory above, as its superuser; null when none does.
 * Whoever may read the folder may do so: it has to be ours and closed to others, or a stranger's server would be asked.
 */
export function runningStore(directory: string): PostgresConnection | null {
  for (let at = directory; ; at = dirname(at)) {
    const found = storeIn(join(at, ".holdfast"));
    if (found !== null) return found;
    if (dirname(at) === at) return null;
  }
}

function storeIn(home: string): PostgresConnection | null {
  try {
    const { uid, mode } = statSync(home);
    if (process.getuid !== undefined && (uid !== process.getuid() || (mode & 0o077) !== 0)) return null;
    const cluster = join(home, "postgres");
    // What a server writes of itself: pid, data, start, port, socket's folder, address.
    const [pid = "", , , port = "", socket = "", address = ""] =
      readPidFile(clusterData(cluster))
        ?.split("\n")
        .map((line) => line.trim()) ?? [];
    // What a SIGKILL left there is nobody's.
    if (processIdentity(Number(pid)) === null) return null;
    const host = socket === "" ? address : socket;
    if (host === "" || (socket !== "" && !existsSync(join(socket, `.s.PGSQL.${port}`)))) return null;
    const { password } = readCluster(cluster);
    return { host, port: Number(port), database, user: superuser, password };
  } catch {
    return null;
  }
}
