import { join } from "node:path";
import { RuntimeRefusal } from "../../core/runtime.port.ts";
import { checkName } from "../../sandboxes/object-name.ts";

/**
 * Where a sandbox lives on disk: `<directory>/<name>/<uid>/`. The name's folder is published by one rename of
 * a finished staging folder, which fails when the name is taken; everything inside is reached through the
 * UID, so that no late caller, however long it was suspended, can touch an object of another UID.
 */
export interface Folder {
  readonly name: string;
  readonly uid: string;
  readonly path: string;
}

export const files = {
  /** What was asked for. Written before the folder has its name, never changed. */
  request: "request.json",
  /** The private environment. Gone as soon as a supervisor has read it. */
  private: "private.json",
  /** Who supervises, or that nobody ever will. Created once, by link. */
  claim: "supervisor.json",
  /** Epoch and phase. Written by the supervisor alone. */
  state: "state.json",
  /** Exists from before the command is spawned: it may run, and will never be spawned again. */
  started: "started",
  /** The command's pid and start time. */
  command: "command.json",
  /** How it ended. Created once, by link: whoever writes it first is right for good. */
  outcome: "outcome.json",
  output: "output.log",
  errors: "supervisor.err",
  work: "work",
  temporary: "tmp",
} as const;

/** Folders of the runtime's own, beside the names. A name never begins with a dot. */
export const stagingFolder = ".staging";
export const removedFolder = ".removed";
export const cacheFolder = ".cache";

export const sandboxMarker = (uid: string): string => `HOLDFAST_SANDBOX=${uid}`;
/** The supervisor's own marker. A child carries it between fork and exec, so it is looked for as well. */
export const supervisorMarker = (uid: string): string => `HOLDFAST_SUPERVISOR=${uid}`;

const uidPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

export const isUid = (text: string): boolean => uidPattern.test(text);

export function folderOf(directory: string, name: string, uid: string): Folder {
  checkName(name, "the sandbox's name");
  if (!isUid(uid)) throw new RuntimeRefusal("invalid", "the UID is not one of the process runtime");
  return { name, uid, path: join(directory, name, uid) };
}

/** Short, because a socket's path has at most 107 bytes on Linux and 103 on macOS. */
export function socketPath(socketDirectory: string, uid: string): string {
  return join(socketDirectory, `${uid.replaceAll("-", "")}.sock`);
}
export const socketPathBytesMax = 103;
