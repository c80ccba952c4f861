import { randomUUID } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { chmod, mkdir, rename, writeFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { httpUrl } from "../config/readers.ts";
import { UsageError } from "./failures.ts";

/** A server by a short name. Its token stays in a file of its own. */
export interface ServerContext {
  readonly url: string;
  readonly tokenFile: string | null;
}

export interface Contexts {
  /** What is used where nothing nearer says which server. */
  readonly current: string | null;
  readonly servers: ReadonlyMap<string, ServerContext>;
}

const named = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

export function contextsPath(configHome: string | null): string {
  return join(configHome ?? join(homedir(), ".config"), "holdfast", "contexts.json");
}

export function contextName(text: string): string {
  if (named.test(text)) return text;
  throw new UsageError(
    `${JSON.stringify(text)} is not a context's name: 1 to 63 lower-case letters, digits and inner hyphens`,
  );
}

/** None when there is no file. It decides where tokens go: one that others can write to is not used. */
export function readContexts(path: string): Contexts {
  let text: string;
  try {
    const { uid, mode } = statSync(path);
    const ours = process.getuid === undefined || (uid === process.getuid() && (mode & 0o022) === 0);
    if (!ours) throw new UsageError(`${path} is not used: others own it or may write to it`);
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof UsageError) throw error;
    return { current: null, servers: new Map() };
  }
  try {
    return parsed(JSON.parse(text));
  } catch (error) {
    throw new UsageError(
      `${path} is not valid: ${error instanceof Error ? error.message : String(error)}`,
      "Correct it, or remove it and make the contexts again.",
    );
  }
}

interface Stored {
  readonly current?: unknown;
  readonly contexts?: Readonly<Record<string, { readonly url?: unknown; readonly token_file?: unknown }>>;
}

function parsed(value: unknown): Contexts {
  if (typeof value !== "object" || value === null) throw new Error("it is no object");
  const { current = null, contexts = {} } = value as Stored; // each member is looked at below
  const servers = new Map<string, ServerContext>();
  for (const [name, { url, token_file: file = null }] of Object.entries(contexts)) {
    if (file !== null && typeof file !== "string") throw new Error(`the token_file of ${name} is no path`);
    servers.set(contextName(name), { url: httpUrl(String(url)), tokenFile: file });
  }
  if (current !== null && (typeof current !== "string" || !servers.has(current))) {
    throw new Error("`current` names no context");
  }
  return { current, servers };
}

/** Whole or not at all, and closed to others. */
export async function writeContexts(path: string, { current, servers }: Contexts): Promise<void> {
  const contexts = Object.fromEntries(
    [...servers].map(([name, { url, tokenFile }]) => [
      name,
      { url, ...(tokenFile === null ? {} : { token_file: tokenFile }) },
    ]),
  );
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${randomUUID()}`;
  await writeFile(draft, `${JSON.stringify({ current, contexts }, null, 2)}\n`, { mode: 0o600, flag: "wx" });
  await chmod(draft, 0o600);
  await rename(draft, path);
}

export function serverNamed({ servers }: Contexts, name: string): ServerContext {
  const found = servers.get(name);
  if (found !== undefined) return found;
  const known = [...servers.keys()].join(", ");
  throw new UsageError(
    `there is no context ${JSON.stringify(name)}`,
    known === "" ? "`holdfast context set NAME --url URL` makes one." : `There are: ${known}.`,
  );
}

/** For completion, which complains of nothing. */
export function contextNames(path: string): string[] {
  try {
    return [...readContexts(path).servers.keys()];
  } catch {
    return [];
  }
}

export function withServer(contexts: Contexts, name: string, server: ServerContext): Contexts {
  return { ...contexts, servers: new Map([...contexts.servers, [name, server]]) };
}

export function withoutServer({ current, servers }: Contexts, name: string): Contexts {
  return {
    current: current === name ? null : current,
    servers: new Map([...servers].filter(([one]) => one !== name)),
  };
}
