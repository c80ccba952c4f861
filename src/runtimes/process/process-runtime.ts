import { existsSync } from "node:fs";
import { extname, join, resolve } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { HoldfastError } from "../../core/errors.ts";
import { uuidv7 } from "../../core/ids.ts";
import { assertOutsideTransition } from "../../core/outside.ts";
import {
  type ExternalObject,
  type LogRecord,
  type Observation,
  type PrepareRequest,
  type Runtime,
  RuntimeRefusal,
  type SandboxRef,
  type SandboxSpec,
} from "../../core/runtime.port.ts";
import type { Microseconds } from "../../core/time.ts";
import { checkRequest } from "../../sandboxes/check-request.ts";
import { checkName } from "../../sandboxes/object-name.ts";
import { readableSecretValues } from "../../sandboxes/secret-files.ts";
import type { ControlRequest } from "./control.ts";
import { ask } from "./control-client.ts";
import { control } from "./control-loop.ts";
import {
  look,
  readCommandRecord,
  readEnd,
  readStanding,
  runsWithoutFolder,
  supervisorEnded,
} from "./evidence.ts";
import { cacheFolder, type Folder, isUid, socketPath } from "./layout.ts";
import { readCursor, readLog } from "./log-reader.ts";
import { now, type RequestRecord, type Settings } from "./records.ts";
import {
  checkSocketDirectory,
  defaultSocketDirectory,
  prepareDirectories,
  removeSocket,
} from "./socket-directory.ts";
import type { Launcher } from "./start-supervisor.ts";
import { Store } from "./store.ts";

export interface ProcessRuntimeOptions {
  /** Absolute, on a local disk of this host, used by one installation. */
  readonly directory: string;
  readonly installation: string;
  /** A secret is the file `<secretsDirectory>/<name>/<key>`. */
  readonly secretsDirectory: string;
  /** For control sockets: short, ours alone. */
  readonly socketDirectory?: string;
  /** The Node that runs supervisors. */
  readonly nodePath?: string;
  /** `PATH` of the commands. */
  readonly searchPath?: string;
  /** Output kept for each sandbox, with the framing: 17 bytes for up to 64 KiB. */
  readonly logBytesMax?: number;
}

const defaultSearchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const defaultLogBytesMax = 64 * 1024 * 1024;
const watchMilliseconds = 10_000;
const blindMilliseconds = 1_000;
/** Each round but the last was lost to somebody who created or removed the same name at that moment. */
const roundsMax = 20;

/**
 * Sandboxes as processes of this host, for development and for work that is trusted as much as Holdfast is.
 *
 * IT ISOLATES NOTHING. A command runs as our own user: it can read and write this user's files, reach the
 * network, see other processes, and signal them; limits of CPU, memory and disk are not enforced, the image is
 * ignored. What holds is the protocol: held until released, run at most once, ended at its limit, with evidence.
 * It never passes a database password, because it is never given one and commands get a fresh environment.
 */
export function processRuntime(options: ProcessRuntimeOptions): Runtime {
  return new ProcessRuntime(options);
}

class ProcessRuntime implements Runtime {
  readonly kind = "process";
  readonly #directory: string;
  readonly #installation: string;
  readonly #store: Store;
  readonly #settings: Settings;
  readonly #launcher: Launcher;

  constructor(options: ProcessRuntimeOptions) {
    const searchPath = options.searchPath ?? defaultSearchPath;
    this.#directory = resolve(options.directory);
    this.#installation = options.installation;
    this.#store = new Store(this.#directory);
    this.#settings = {
      secretsDirectory: resolve(options.secretsDirectory),
      socketDirectory: checkSocketDirectory(options.socketDirectory ?? defaultSocketDirectory()),
      searchPath,
      logBytesMax: options.logBytesMax ?? defaultLogBytesMax,
    };
    this.#launcher = {
      nodePath: options.nodePath ?? process.execPath,
      supervisorPath: findSupervisor(),
      searchPath,
      cacheDirectory: join(this.#directory, cacheFolder),
    };
  }

  async prepare(request: PrepareRequest, signal: AbortSignal): Promise<{ readonly uid: string }> {
    assertOutsideTransition("process.prepare");
    checkRequest(request, this.#installation);
    await prepareDirectories(this.#directory, this.#settings.socketDirectory);
    for (let round = 0; round < roundsMax; round += 1) {
      signal.throwIfAborted();
      // Whoever is first gives the name its object; everybody finds that one in the next round.
      const folder = await this.#store.find(request.name);
      if (folder === null) {
        await this.#store.create(this.#record(request), request.privateEnv);
        continue;
      }
      const uid = await this.#adopt(folder, request, signal);
      if (uid !== null) return { uid };
    }
    throw new HoldfastError("unavailable", `${request.name} could be neither created nor adopted`);
  }

  async fence(ref: SandboxRef, epoch: bigint, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("process.fence");
    await this.#control(await this.#need(ref), { op: "fence", uid: ref.uid, epoch }, signal);
  }

  async release(ref: SandboxRef, epoch: bigint, limit: Microseconds, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("process.release");
    await this.#control(await this.#need(ref), { op: "release", uid: ref.uid, epoch, limit }, signal);
  }

  async stop(ref: SandboxRef, epoch: bigint, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("process.stop");
    await this.#control(await this.#need(ref), { op: "stop", uid: ref.uid, epoch }, signal);
  }

  async observe(ref: SandboxRef, signal: AbortSignal): Promise<Observation> {
    assertOutsideTransition("process.observe");
    signal.throwIfAborted();
    const folder = await this.#find(ref);
    if (folder === null) return this.#observeAbsent(ref);
    try {
      return await this.#observeFolder(folder);
    } catch (error) {
      return { state: "unproven", reason: `its records can't be read: ${String(error)}` };
    }
  }

  async changed(ref: SandboxRef, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("process.changed");
    const folder = await this.#find(ref);
    if (folder === null || signal.aborted) return;
    // A change between the caller's look and ours wakes nobody: the bound makes that good.
    const bounded = AbortSignal.any([signal, AbortSignal.timeout(watchMilliseconds)]);
    try {
      const seen = await look(folder);
      if (seen.kind === "live") await ask(seen.socket, { op: "watch", uid: folder.uid }, bounded);
      else if (seen.kind !== "stopped") await delay(blindMilliseconds, undefined, { signal: bounded });
    } catch {
      // Whatever it was, a look will show it. Not at once again, though, when nobody listens.
      await delay(100, undefined, { signal: bounded }).catch(() => undefined);
    }
  }

  logs(
    ref: SandboxRef,
    options: { readonly cursor: string | null; readonly follow: boolean },
    signal: AbortSignal,
  ): AsyncIterable<LogRecord> {
    assertOutsideTransition("process.logs");
    return this.#logs(ref, readCursor(options.cursor, ref.uid), options.follow, signal);
  }

  async find(name: string, signal: AbortSignal): Promise<string | null> {
    assertOutsideTransition("process.find");
    signal.throwIfAborted();
    return (await this.#store.find(checkName(name, "the sandbox's name")))?.uid ?? null;
  }

  async secretValues(spec: Pick<SandboxSpec, "secrets">, signal: AbortSignal): Promise<readonly string[]> {
    assertOutsideTransition("process.secretValues");
    signal.throwIfAborted();
    return readableSecretValues(this.#settings.secretsDirectory, spec.secrets);
  }

  async remove(ref: SandboxRef, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("process.remove");
    signal.throwIfAborted();
    const folder = await this.#find(ref);
    if (folder === null) return;
    const seen = await look(folder);
    if (seen.kind !== "stopped" && seen.kind !== "absent") {
      throw new RuntimeRefusal("invalid", `${ref.name} is not known to have stopped: stop it first`);
    }
    await supervisorEnded(folder, signal);
    await removeSocket(socketPath(this.#settings.socketDirectory, folder.uid));
    await this.#store.remove(folder);
  }

  list(signal: AbortSignal): AsyncIterable<ExternalObject> {
    assertOutsideTransition("process.list");
    return this.#list(signal);
  }

  async *#list(signal: AbortSignal): AsyncGenerator<ExternalObject, void> {
    await this.#store.sweep();
    for await (const folder of this.#store.all()) {
      signal.throwIfAborted();
      const request = await this.#store.readRequest(folder);
      if (request === null || request.installation !== this.#installation) continue;
      const epoch = (await readStanding(folder))?.epoch ?? request.epoch;
      const { name, uid, tenant, sandbox, createdAt } = request;
      yield { name, uid, tenant, sandbox, epoch, createdAt };
    }
  }

  async *#logs(
    ref: SandboxRef,
    from: number,
    follow: boolean,
    signal: AbortSignal,
  ): AsyncGenerator<LogRecord, void> {
    const folder = await this.#need(ref);
    const source = {
      folder,
      ended: async () => (await readEnd(folder)) !== null || (await this.#find(ref)) === null,
      settle: async () => {
        await look(folder);
      },
    };
    yield* readLog(source, from, follow, signal);
  }

  async #observeFolder(folder: Folder): Promise<Observation> {
    const { uid } = folder;
    const seen = await look(folder);
    switch (seen.kind) {
      case "absent":
        return { state: "absent" };
      case "unproven":
        return { state: "unproven", reason: seen.reason };
      case "stopped":
        return { state: "stopped", uid, ...seen.record };
      case "unclaimed":
        return { state: "held", uid, epoch: seen.request.epoch };
      case "live":
        break;
    }
    const { phase, epoch } = seen.state;
    switch (phase) {
      case "held":
        return { state: "held", uid, epoch };
      case "running":
        return { state: "running", uid, startedAt: (await readCommandRecord(folder))?.startedAt ?? null };
      case "stopping":
      case "stopped":
        return { state: "stopping", uid };
    }
  }

  /** Null when it was removed meanwhile. */
  async #adopt(folder: Folder, request: PrepareRequest, signal: AbortSignal): Promise<string | null> {
    const existing = await this.#store.readRequest(folder);
    if (existing === null) return null;
    if (existing.specDigest !== request.specDigest || existing.installation !== request.installation) {
      throw new RuntimeRefusal("name_taken", `${request.name} belongs to an object of another spec`);
    }
    try {
      await this.#control(folder, { op: "fence", uid: folder.uid, epoch: request.epoch }, signal);
      return folder.uid;
    } catch (error) {
      if (error instanceof RuntimeRefusal && error.reason === "gone") return null;
      throw error;
    }
  }

  /** A folder that somebody deleted by hand is no proof while its processes run. */
  async #observeAbsent(ref: SandboxRef): Promise<Observation> {
    if (isUid(ref.uid) && (await runsWithoutFolder(ref.uid))) {
      return { state: "unproven", reason: "its folder is gone, but processes with its marker run" };
    }
    return { state: "absent" };
  }

  async #find(ref: SandboxRef): Promise<Folder | null> {
    const folder = await this.#store.find(checkName(ref.name, "the sandbox's name"));
    return folder?.uid === ref.uid ? folder : null;
  }

  async #need(ref: SandboxRef): Promise<Folder> {
    const folder = await this.#store.find(checkName(ref.name, "the sandbox's name"));
    if (folder === null) throw new RuntimeRefusal("gone", `${ref.name} was removed`);
    if (folder.uid !== ref.uid) throw new RuntimeRefusal("wrong_uid", `${ref.name} has another UID`);
    return folder;
  }

  async #control(
    folder: Folder,
    asked: Exclude<ControlRequest, { op: "watch" }>,
    signal: AbortSignal,
  ): Promise<void> {
    const request = await this.#store.readRequest(folder);
    if (request === null) throw new RuntimeRefusal("gone", `${folder.name} was removed`);
    await control({ folder, request, launcher: this.#launcher }, asked, signal);
  }

  #record(request: PrepareRequest): RequestRecord {
    const { name, installation, tenant, sandbox, specDigest, spec, epoch, holdLimit } = request;
    const identity = { uid: uuidv7(), name, installation, tenant, sandbox };
    return { ...identity, specDigest, spec, epoch, holdLimit, createdAt: now(), settings: this.#settings };
  }
}

/** Beside this module, or, when the composition root was bundled into one file, where the package keeps it. */
function findSupervisor(): string {
  const extension = extname(fileURLToPath(import.meta.url));
  const places = [`./supervisor${extension}`, `./runtimes/process/supervisor${extension}`];
  const paths = places.map((place) => fileURLToPath(new URL(place, import.meta.url)));
  const found = paths.find((path) => existsSync(path));
  if (found === undefined) throw new Error(`the supervisor's program is missing: ${paths.join(", ")}`);
  return found;
}
