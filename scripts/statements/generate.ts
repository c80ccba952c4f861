import type { Dirent } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { type Client, DatabaseError } from "pg";
import { type DescribedStatement, describe, StatementError } from "./describe.ts";
import { SqlSyntaxError } from "./lexer.ts";
import { type ParsedStatement, parseStatements } from "./parser.ts";
import { renderModule } from "./render.ts";

/** A generated module: its path below the root, with `/`, and its text. */
export interface GeneratedModule {
  readonly path: string;
  readonly text: string;
}

export interface Generated {
  readonly modules: readonly GeneratedModule[];
  /** One line each, `src/x.sql:12: what is wrong`. */
  readonly problems: readonly string[];
}

/** PostgreSQL cuts longer names of prepared statements without a word. */
const nameBytesMax = 63;

/** Read every `.sql` file below `src` and describe each statement on a server that has the migrated schema. */
export async function generate(root: string, client: Client): Promise<Generated> {
  const modules: GeneratedModule[] = [];
  const problems: string[] = [];
  const names = new Map<string, string>();
  for (const path of await sqlFiles(root)) {
    const file = basename(path, ".sql");
    const described: DescribedStatement[] = [];
    for (const statement of await parseFile(root, path, problems)) {
      const name = `${file}.${statement.name}`;
      const place = `${path}:${String(statement.line)}`;
      const other = names.get(name);
      if (other !== undefined) problems.push(`${place}: ${name} is also in ${other}`);
      if (Buffer.byteLength(name) > nameBytesMax) problems.push(`${place}: the name ${name} is too long`);
      names.set(name, place);
      try {
        described.push(await describe(client, statement));
      } catch (error) {
        if (!(error instanceof StatementError) && !(error instanceof DatabaseError)) throw error;
        problems.push(`${place}: ${statement.name}: ${error.message}${position(error, statement)}`);
      }
    }
    const from = dirname(path);
    const imports = {
      statement: importPath(from, "src/core/postgres/statement.ts"),
      time: importPath(from, "src/core/time.ts"),
    };
    modules.push({ path: `${path}.ts`, text: renderModule(file, described, imports) });
  }
  return { modules, problems };
}

/** Which modules on disk differ from what was generated, or are left over from a file that is gone. */
export async function drift(root: string, modules: readonly GeneratedModule[]): Promise<string[]> {
  const differing: string[] = [];
  for (const { path, text } of modules) {
    if ((await readFile(join(root, path), "utf8").catch(() => "")) !== text) differing.push(path);
  }
  const generated = new Set(modules.map((module) => module.path));
  const present = await filesBelow(root, ".sql.ts");
  return [...differing, ...present.filter((path) => !generated.has(path))].sort();
}

async function parseFile(
  root: string,
  path: string,
  problems: string[],
): Promise<readonly ParsedStatement[]> {
  try {
    return parseStatements(await readFile(join(root, path), "utf8"));
  } catch (error) {
    if (!(error instanceof SqlSyntaxError)) throw error;
    problems.push(`${path}:${String(error.line)}: ${error.message}`);
    return [];
  }
}

function position(error: Error, statement: ParsedStatement): string {
  const at = error instanceof DatabaseError ? Number(error.position) : Number.NaN;
  if (Number.isNaN(at)) return "";
  return ` at "${statement.text.slice(at - 1, at + 39).replaceAll(/\s+/g, " ")}"`;
}

function sqlFiles(root: string): Promise<string[]> {
  return filesBelow(root, ".sql");
}

async function filesBelow(root: string, extension: string): Promise<string[]> {
  const entries: Dirent[] = await readdir(join(root, "src"), { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && entry.name.endsWith(extension))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).replaceAll("\\", "/"))
    .sort();
}

function importPath(from: string, to: string): string {
  const path = relative(from, to).replaceAll("\\", "/");
  return path.startsWith(".") ? path : `./${path}`;
}
