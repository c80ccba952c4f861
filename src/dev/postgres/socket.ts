import { createHash } from "node:crypto";
import { chownSync, lstatSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ServerAccount } from "./account.ts";

/** The port only names the socket file: the server listens on no network address. */
export const socketPort = 5432;

/** Linux allows 107 bytes in a socket's path, macOS 103. */
const pathBytesMax = 103;

/**
 * A 0700 folder for the server's socket: beside the data, or below the temporary folder when that path is too
 * long or when the server's account cannot reach it. The name is stable, so a killed run leaves nothing that
 * the next does not use again.
 */
export function socketDirectory(
  directory: string,
  account: ServerAccount | null,
  reachable: boolean,
): string {
  const beside = join(directory, "socket");
  if (reachable && fits(beside)) return ownFolder(beside, account) ?? temporary(account);
  const name = `holdfast-${createHash("sha256").update(directory).digest("hex").slice(0, 16)}`;
  const candidates = [join(tmpdir(), name), join("/tmp", name)].filter(fits);
  for (const candidate of candidates) {
    const folder = ownFolder(candidate, account);
    if (folder !== null) return folder;
  }
  return temporary(account);
}

/** Makes the folder, or takes one that exists when it is ours alone: no link, nobody else's, closed to others. */
function ownFolder(path: string, account: ServerAccount | null): string | null {
  try {
    mkdirSync(path, { mode: 0o700 });
    if (account !== null) chownSync(path, account.uid, account.gid);
    return path;
  } catch {
    return isOwn(path, account) ? path : null;
  }
}

function isOwn(path: string, account: ServerAccount | null): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined || !found.isDirectory()) return false;
  return found.uid === (account?.uid ?? process.getuid?.()) && (found.mode & 0o077) === 0;
}

/** Someone took the name that we wanted: a random one cannot be taken. */
function temporary(account: ServerAccount | null): string {
  const folder = mkdtempSync(join(fits(join(tmpdir(), "holdfast-XXXXXX")) ? tmpdir() : "/tmp", "holdfast-"));
  if (account !== null) chownSync(folder, account.uid, account.gid);
  return folder;
}

export function removeSocketDirectory(path: string): void {
  rmSync(path, { recursive: true, force: true });
}

function fits(folder: string): boolean {
  return Buffer.byteLength(join(folder, `.s.PGSQL.${socketPort}`)) <= pathBytesMax;
}
