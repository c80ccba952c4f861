import { chmod, mkdir, readdir, rename, rm, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { HoldfastError } from "../../core/errors.ts";
import { flushFolder, isCode, readRecord, writeNew } from "./durable.ts";
import { toJson } from "./fields.ts";
import { type Folder, files, folderOf, isUid, removedFolder, stagingFolder } from "./layout.ts";
import { readProcess } from "./process-table.ts";
import { type RequestRecord, readRequest } from "./records.ts";

/** The directory of all objects: creating, finding and deleting their folders, atomically. */
export class Store {
  readonly #directory: string;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** Build the folder aside and give it its name by one rename. False when the name is taken. */
  async create(request: RequestRecord, privateEnv: Readonly<Record<string, string>>): Promise<boolean> {
    const aside = await this.#asideName(request.uid);
    const inner = join(aside, request.uid);
    await mkdir(join(inner, files.work), { recursive: true, mode: 0o700 });
    try {
      await mkdir(join(inner, files.temporary), { mode: 0o700 });
      await writeNew(join(inner, files.request), toJson(request));
      await writeNew(join(inner, files.private), toJson({ env: privateEnv }));
      await flushFolder(inner);
      await flushFolder(aside);
      // Replaces an empty folder, which a removal cut short leaves, and no other.
      await rename(aside, join(this.#directory, request.name));
      await flushFolder(this.#directory);
      return true;
    } catch (error) {
      await removeTree(aside);
      if (isCode(error, "ENOTEMPTY", "EEXIST")) return false;
      throw error;
    }
  }

  /** The object that has this name now. */
  async find(name: string): Promise<Folder | null> {
    const uids = (await listFolder(join(this.#directory, name))).filter(isUid);
    const [uid] = uids;
    if (uid === undefined) return null;
    if (uids.length > 1) throw new HoldfastError("unavailable", `${name} holds more than one object`);
    return folderOf(this.#directory, name, uid);
  }

  async *all(): AsyncGenerator<Folder, void> {
    for (const name of await listFolder(this.#directory)) {
      if (name.startsWith(".")) continue;
      for (const uid of await listFolder(join(this.#directory, name))) {
        if (isUid(uid)) yield folderOf(this.#directory, name, uid);
      }
    }
  }

  readRequest(folder: Folder): Promise<RequestRecord | null> {
    return readRecord(join(folder.path, files.request), readRequest);
  }

  /**
   * Take it away by its UID, then free the name if it is empty. A name that got a new object meanwhile is
   * not empty, so a remover that was suspended in between does no harm.
   */
  async remove(folder: Folder): Promise<void> {
    const aside = join(this.#directory, removedFolder, folder.uid);
    await mkdir(join(this.#directory, removedFolder), { recursive: true, mode: 0o700 });
    try {
      await rename(folder.path, aside);
    } catch (error) {
      // ENOTEMPTY and EEXIST: an earlier removal was cut short, which can't be with the folder in place.
      if (!isCode(error, "ENOENT")) throw error;
    }
    try {
      await rmdir(join(this.#directory, folder.name));
    } catch (error) {
      if (!isCode(error, "ENOENT", "ENOTEMPTY", "EEXIST")) throw error;
    }
    await removeTree(aside);
  }

  /** Finish removals that were cut short, and drop what creators that are dead by now left unpublished. */
  async sweep(): Promise<void> {
    for (const uid of await listFolder(join(this.#directory, removedFolder))) {
      await removeTree(join(this.#directory, removedFolder, uid));
    }
    for (const aside of await listFolder(join(this.#directory, stagingFolder))) {
      const [pid, startTime] = aside.split(".");
      const creator = await readProcess(Number(pid));
      if (creator !== null && encode(creator.startTime) === startTime) continue;
      await removeTree(join(this.#directory, stagingFolder, aside));
    }
  }

  /** Names its creator, so that others can tell work in progress from what a dead one left. */
  async #asideName(uid: string): Promise<string> {
    const self = await readProcess(process.pid);
    const creator = `${process.pid}.${encode(self?.startTime ?? "")}`;
    return join(this.#directory, stagingFolder, `${creator}.${uid}`);
  }
}

const encode = (startTime: string): string => Buffer.from(startTime).toString("hex");

async function listFolder(path: string): Promise<readonly string[]> {
  try {
    return await readdir(path);
  } catch (error) {
    if (isCode(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}

/** Build tools make folders read-only (Go's module cache does), which only root can delete as they are. */
async function removeTree(path: string): Promise<void> {
  try {
    await rm(path, { recursive: true, force: true });
  } catch (error) {
    if (!isCode(error, "EACCES", "EPERM", "ENOTEMPTY")) throw error;
    await makeWritable(path);
    await rm(path, { recursive: true, force: true, maxRetries: 2 });
  }
}

async function makeWritable(path: string): Promise<void> {
  await chmod(path, 0o700);
  for (const entry of await readdir(path, { withFileTypes: true })) {
    if (entry.isDirectory()) await makeWritable(join(path, entry.name));
  }
}
