import { readFileSync, statSync } from "node:fs";

/** The user that the server runs as, when that is not the user who starts it. */
export interface ServerAccount {
  readonly uid: number;
  readonly gid: number;
}

const nobody: ServerAccount = { uid: 65534, gid: 65534 };

/**
 * PostgreSQL refuses to run as root. Root therefore starts it as the owner of the data, or, the first time,
 * as `nobody`: initdb wants an account that exists, and no account is ever created.
 */
export function serverAccount(dataDirectory: string): ServerAccount | null {
  if (process.getuid?.() !== 0) return null;
  return ownerOf(dataDirectory) ?? accountNamed("nobody") ?? nobody;
}

function ownerOf(path: string): ServerAccount | null {
  const found = statSync(path, { throwIfNoEntry: false });
  return found === undefined || found.uid === 0 ? null : { uid: found.uid, gid: found.gid };
}

function accountNamed(name: string): ServerAccount | null {
  try {
    const line = readFileSync("/etc/passwd", "utf8")
      .split("\n")
      .find((entry) => entry.startsWith(`${name}:`));
    const [, , uid, gid] = line?.split(":") ?? [];
    return parseAccount(Number(uid), Number(gid));
  } catch {
    return null;
  }
}

function parseAccount(uid: number, gid: number): ServerAccount | null {
  return Number.isInteger(uid) && Number.isInteger(gid) && uid > 0 ? { uid, gid } : null;
}
