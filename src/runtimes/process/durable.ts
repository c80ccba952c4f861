import { closeSync, fsyncSync, linkSync, openSync, renameSync, unlinkSync, writeFileSync } from "node:fs";
import { link, open, readFile, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { uuidv7 } from "../../core/ids.ts";

/**
 * Files that survive a crash whole or not at all: written aside, flushed, and then given their name. The
 * supervisor writes synchronously, so that a decision and its record are one step of its event loop.
 */
export function replaceSync(path: string, content: string): void {
  const aside = writeAsideSync(path, content);
  renameSync(aside, path);
  flushFolderSync(dirname(path));
}

/** Give a complete file its name, once. False when the name is taken. */
export function createSync(path: string, content: string): boolean {
  const aside = writeAsideSync(path, content);
  try {
    linkSync(aside, path);
  } catch (error) {
    if (isCode(error, "EEXIST")) return false;
    throw error;
  } finally {
    unlinkSync(aside);
  }
  flushFolderSync(dirname(path));
  return true;
}

function writeAsideSync(path: string, content: string): string {
  const aside = asideName(path);
  const file = openSync(aside, "wx", 0o600);
  try {
    writeFileSync(file, content);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  return aside;
}

function flushFolderSync(path: string): void {
  const folder = openSync(path, "r");
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}

/** As `createSync`, without blocking the controller's event loop. */
export async function create(path: string, content: string): Promise<boolean> {
  const aside = asideName(path);
  await writeNew(aside, content);
  try {
    await link(aside, path);
  } catch (error) {
    if (isCode(error, "EEXIST")) return false;
    throw error;
  } finally {
    await unlink(aside);
  }
  await flushFolder(dirname(path));
  return true;
}

export async function writeNew(path: string, content: string): Promise<void> {
  const file = await open(path, "wx", 0o600);
  try {
    await file.writeFile(content);
    await file.sync();
  } finally {
    await file.close();
  }
}

export async function flushFolder(path: string): Promise<void> {
  const folder = await open(path, "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

/** The decoded file, or null when there is none. */
export async function readRecord<T>(path: string, decode: (document: string) => T): Promise<T | null> {
  let document: string;
  try {
    document = await readFile(path, "utf8");
  } catch (error) {
    if (isCode(error, "ENOENT")) return null;
    throw error;
  }
  return decode(document);
}

/** Whether an error of the file system or a socket has one of these codes. */
export function isCode(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && "code" in error && codes.some((code) => error.code === code);
}

const asideName = (path: string): string => join(dirname(path), `.aside-${uuidv7()}`);
