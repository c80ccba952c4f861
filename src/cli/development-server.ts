import { readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { httpUrl, token as tokenOf } from "../config/readers.ts";
import { processIdentity } from "../dev/directory-lock.mjs";
import { Advised, UsageError } from "./failures.ts";

export interface DevelopmentServer {
  readonly url: string;
  readonly token: string;
  /** Where it says so. */
  readonly file: string;
  /** The process that said so, when it has ended without taking it back: nothing answers there, or somebody else. */
  readonly gone: number | null;
}

export function stale({ file, gone }: DevelopmentServer): Advised {
  return new Advised(
    "unreachable",
    `the server of ${file} has ended without stopping: process ${String(gone)} is gone`,
    "Start it again (`npm start` or `holdfast dev`), or remove the file.",
  );
}

/**
 * A `fetch` for a command that lasts longer than the server: it may come back on another port, and leaves its new
 * address where the old one was. So each request goes to where the server is now. A token that was given by hand stays.
 */
export function whereItIsNow(first: DevelopmentServer, given: string | undefined): typeof fetch {
  return (input, init) => {
    // Of this folder alone: while it is away, no other's server is it.
    const { url, token } = readDevelopmentFile(first.file) ?? first;
    const asked = input instanceof Request ? input.url : String(input);
    const headers = new Headers(init?.headers);
    headers.set("authorization", `Bearer ${given ?? token}`);
    return fetch(url + asked.slice(first.url.length), { ...init, headers });
  };
}

/**
 * What a running development server left for us in `.holdfast/dev.json`, here or in a directory above. A file
 * of somebody else's could send us, and what we submit, to their server: it has to be ours, closed to others,
 * and name a loopback address.
 */
export function developmentServer(directory: string): DevelopmentServer | null {
  for (let at = directory; ; at = dirname(at)) {
    const found = readDevelopmentFile(join(at, ".holdfast", "dev.json"));
    if (found !== null) return found;
    if (dirname(at) === at) return null;
  }
}

interface Stored {
  readonly url?: unknown;
  readonly token?: unknown;
  /** Not said by releases up to 0.1.0. */
  readonly process?: { readonly pid?: unknown; readonly identity?: unknown };
}

/** Null when it lives, or nobody knows. */
function goneProcess(by: Stored["process"]): number | null {
  if (typeof by?.pid !== "number" || typeof by.identity !== "string") return null;
  return processIdentity(by.pid) === by.identity ? null : by.pid;
}

function readDevelopmentFile(path: string): DevelopmentServer | null {
  let text: string;
  try {
    const { uid, mode } = statSync(path);
    const ours = process.getuid === undefined || (uid === process.getuid() && (mode & 0o077) === 0);
    if (!ours) throw new UsageError(`${path} is not used: it belongs to somebody else or is open to others`);
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof UsageError) throw error;
    return null;
  }
  try {
    const { url, token, process: by } = JSON.parse(text) as Stored;
    const address = httpUrl(String(url));
    const { hostname } = new URL(address);
    if (!["127.0.0.1", "[::1]", "localhost"].includes(hostname))
      throw new Error("its url is not on loopback");
    return { url: address, token: tokenOf(String(token)), file: path, gone: goneProcess(by) };
  } catch (error) {
    throw new UsageError(
      `${path} is not valid: ${error instanceof Error ? error.message : String(error)}`,
      "Start the server again, or remove the file.",
    );
  }
}
