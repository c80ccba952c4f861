import { lstat, mkdir, unlink } from "node:fs/promises";
import { userInfo } from "node:os";
import { join, resolve } from "node:path";
import { HoldfastError } from "../../core/errors.ts";
import { isCode } from "./durable.ts";
import { socketPath, socketPathBytesMax, stagingFolder } from "./layout.ts";

/** Not below the objects' directory, whose path may be too long for a socket. */
export const defaultSocketDirectory = (): string => `/tmp/holdfast-${userInfo().uid}`;

export function checkSocketDirectory(directory: string): string {
  const path = resolve(directory);
  if (Buffer.byteLength(socketPath(path, "0".repeat(32))) > socketPathBytesMax) {
    throw new HoldfastError("invalid_configuration", `the socket directory's path is too long: ${path}`);
  }
  return path;
}

/**
 * Whoever can enter the socket folder can release and stop sandboxes. In `/tmp` somebody else may have made
 * a folder of that name first, so it is used only if it is a folder, ours, and closed to all others.
 */
export async function prepareDirectories(directory: string, socketDirectory: string): Promise<void> {
  await mkdir(join(directory, stagingFolder), { recursive: true, mode: 0o700 });
  await mkdir(socketDirectory, { recursive: true, mode: 0o700 });
  const found = await lstat(socketDirectory);
  if (!found.isDirectory() || found.uid !== userInfo().uid || (found.mode & 0o077) !== 0) {
    throw new HoldfastError(
      "invalid_configuration",
      `${socketDirectory} is not a folder of our own with mode 0700: remove it, or configure another`,
    );
  }
}

/** Left by a supervisor that was killed. */
export async function removeSocket(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (!isCode(error, "ENOENT")) throw error;
  }
}
