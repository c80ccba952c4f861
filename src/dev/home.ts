import { randomBytes } from "node:crypto";
import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, renameSync, writeSync } from "node:fs";
import { join } from "node:path";
import { HoldfastError } from "../core/errors.ts";
import type { CallbackKeys } from "../sandboxes/callback.ts";
import { lockDirectory } from "./directory-lock.mjs";

/** What a development store remembers from one start to the next, in `state.json`, readable by its owner alone. */
export interface HomeState {
  readonly installation: string;
  /** Base64. Sandboxes that outlive a crash still hold tokens and capabilities made with these. */
  readonly callbackKey: string;
  readonly blobKey: string;
  /** Where sandboxes report to: the same after a restart, for those that are still running. 0: not chosen yet. */
  readonly callbackPort: number;
  /** The last process that used this folder. Its leases are worth nothing once we hold the folder's lock. */
  readonly incarnation: string | null;
  /** Of this store's own user, and its id. */
  readonly token: string | null;
  readonly tokenId: string | null;
  /** The key under which the example is submitted; null once it has ended, so that the next start builds anew. */
  readonly exampleKey: string | null;
}

/** The folder of a development store (`.holdfast`), locked by this process. */
export interface Home {
  readonly directory: string;
  readonly path: (...parts: string[]) => string;
  readonly state: () => HomeState;
  readonly save: (change: Partial<HomeState>) => void;
  readonly callbackKeys: () => CallbackKeys;
  readonly release: () => void;
}

/** Throws `directory_in_use` while another process works in the folder. */
export async function openHome(directory: string): Promise<Home> {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const lock = await lockDirectory(directory, { name: "owner" });
  if ("heldBy" in lock) {
    throw new HoldfastError(
      "directory_in_use",
      `process ${lock.heldBy} runs in ${directory} already: stop it first`,
    );
  }
  const file = join(directory, "state.json");
  let state = readState(file) ?? newState();
  write(file, state);
  return {
    directory,
    path: (...parts) => join(directory, ...parts),
    state: () => state,
    save(change) {
      state = { ...state, ...change };
      write(file, state);
    },
    callbackKeys: () => [{ id: "dev", key: Buffer.from(state.callbackKey, "base64") }],
    release: lock.release,
  };
}

function newState(): HomeState {
  return {
    installation: `dev-${randomBytes(6).toString("hex")}`,
    callbackKey: randomBytes(32).toString("base64"),
    blobKey: randomBytes(32).toString("base64"),
    callbackPort: 0,
    incarnation: null,
    token: null,
    tokenId: null,
    exampleKey: null,
  };
}

function readState(file: string): HomeState | undefined {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
  try {
    return { ...newState(), ...(JSON.parse(text) as Partial<HomeState>) };
  } catch (error) {
    throw new HoldfastError(
      "invalid_configuration",
      `${file} is damaged; \`holdfast dev --reset\` begins anew`,
      { cause: error },
    );
  }
}

/** Whole or not at all, also when the machine stops in the middle. */
export function write(file: string, value: unknown): void {
  const aside = `${file}.${process.pid}`;
  const handle = openSync(aside, "w", 0o600);
  try {
    writeSync(handle, `${JSON.stringify(value, null, 2)}\n`);
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
  renameSync(aside, file);
}
