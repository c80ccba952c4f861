import { existsSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { dirname, extname, join } from "node:path";
import { gzipSync } from "node:zlib";
import { HoldfastError } from "../core/errors.ts";
import type { ConsoleFile, ConsoleFiles } from "../http/console.ts";

const pageName = "index.html";
const types: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".svg": "image/svg+xml",
};

let read: Promise<ConsoleFiles> | undefined;

/** The console of this release: built into the package, made from the sources in a checkout. Read once. */
export function consoleFiles(): Promise<ConsoleFiles> {
  read ??= readFiles().catch((error: unknown) => {
    read = undefined;
    throw new HoldfastError("unavailable", "the console's files can't be read", { cause: error });
  });
  return read;
}

async function readFiles(): Promise<ConsoleFiles> {
  const folder = builtFolder();
  if (folder === null) {
    const { bundleConsole } = await import("./console-bundle.ts");
    return filesOf(await bundleConsole());
  }
  const names = await readdir(folder);
  return filesOf(
    new Map(
      await Promise.all(names.map(async (name) => [name, await readFile(join(folder, name))] as const)),
    ),
  );
}

/** `dist/console`, which the build writes; null in a checkout's sources. */
function builtFolder(): string | null {
  if (import.meta.filename.endsWith(".ts")) return null;
  for (let at = import.meta.dirname; at !== dirname(at); at = dirname(at)) {
    const folder = join(at, "console");
    if (existsSync(join(folder, pageName))) return folder;
    if (existsSync(join(at, "package.json"))) break;
  }
  throw new Error("there is no console beside this program");
}

function filesOf(files: ReadonlyMap<string, Uint8Array>): ConsoleFiles {
  const file = (name: string, bytes: Uint8Array): ConsoleFile => ({
    type: types[extname(name)] ?? "application/octet-stream",
    bytes: Buffer.from(bytes),
    gzip: gzipSync(bytes, { level: 9 }),
  });
  const page = files.get(pageName);
  if (page === undefined) throw new Error(`the console has no ${pageName}`);
  const assets = [...files].filter(([name]) => name !== pageName);
  return {
    page: file(pageName, page),
    assets: new Map(assets.map(([name, bytes]) => [name, file(name, bytes)])),
  };
}
