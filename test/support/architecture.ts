import { posix } from "node:path";

/** One source file: its path below the root, with `/`, and its text. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

/**
 * What each part may import beside itself: the parts on the left of it. Parts that share a place never import
 * each other. `client` is also shipped alone, so it takes `wire` and nothing else.
 */
const places: readonly (readonly string[])[] = [
  ["wire"],
  ["core", "client"],
  ["config", "console"],
  ["http"],
  ["sandboxes", "deliveries"],
  ["executions", "sessions", "work"],
  ["runtimes", "blobs"],
  // Composition roots: what a process is made of. `dev` puts all of them into one.
  ["main"],
  ["dev"],
  ["cli"],
];

/** Packages that only some files may import, and which. */
const confined: readonly { readonly packages: RegExp; readonly allowed: RegExp }[] = [
  { packages: /^pg(-.*)?$/, allowed: /^src\/(core\/postgres|dev)\// },
  { packages: /^(fastify|@fastify\/.*)$/, allowed: /^src\/http\/|(\/|\.)http\.ts$/ },
  { packages: /^@kubernetes\//, allowed: /^src\/runtimes\/kubernetes\// },
  { packages: /^@aws-sdk\//, allowed: /^src\/blobs\/s3\// },
  { packages: /^(commander|cli-table3|listr2)$/, allowed: /^src\/cli\// },
  { packages: /^@?preact(\/|$)/, allowed: /^src\/console\// },
  // A development dependency: whatever runs without a checkout does without it.
  { packages: /^esbuild$/, allowed: /^src\/main\/console-bundle\.ts$/ },
];

/** A process that serves never changes the schema: only the explicit step and the development store do (M1). */
const changesSchema = /^src\/core\/schema\/(migrate|roles)\.ts$/;
const mayChangeSchema = /^src\/(core\/schema|cli|dev)\//;

/** `npm start` runs the example, which lies beside the sources and is not part of the package. */
const showsExample = "src/cli/start.ts";

/** `wire` and `client` run in browsers too, `console` nowhere else. */
const withoutNode = /^src\/(wire|client|console)\//;
/** What runs inside sandboxes is a program of its own: its configuration is the environment of its sandbox. */
const readsEnvironment = /^src\/(config|sandboxes\/phase-helper|sessions\/agent-program)\.ts$/;
const linesMax = 500;
const nameParts = /^[a-z0-9]+(-[a-z0-9]+)*(\.[a-z0-9]+(-[a-z0-9]+)*)*$/;
/** They say nothing of what is inside. */
const emptyNames = /(^|-)(utils?|helpers?|common|misc|shared|types|manager|v[0-9]+)$/;
/** The promise's own word: the program inside a sandbox that talks to its callbacks. */
const namedByPromise = new Set(["phase-helper"]);

/** Everything that breaks the order of the code, one line each, `path: what is wrong`. */
export function violations(files: readonly SourceFile[]): string[] {
  const sources = files.filter(({ path }) => path.startsWith("src/"));
  const paths = new Set(sources.map(({ path }) => path));
  const code = sources.filter(({ path }) => /\.(ts|tsx|mts|mjs)$/.test(path) && !isTest(path));
  return [
    ...sources.flatMap(({ path }) => nameViolations(path)),
    ...sources.flatMap((file) => sizeViolations(file)),
    ...sources.flatMap(({ path }) =>
      path.endsWith(".sql") && !paths.has(`${path}.ts`)
        ? [`${path}: has no ${path}.ts: npm run generate`]
        : [],
    ),
    ...code.flatMap((file) => [...importViolations(file), ...environmentViolations(file)]),
    ...cycles(code),
  ].sort();
}

function isTest(path: string): boolean {
  return path.endsWith(".test.ts");
}

function nameViolations(path: string): string[] {
  const name = posix.basename(path).replace(/(\.d)?\.(ts|tsx|mts|mjs|sql)$/, "");
  const stem = name.split(".")[0] ?? "";
  if (!nameParts.test(name)) return [`${path}: the name is not kebab-case`];
  if (emptyNames.test(stem) && !namedByPromise.has(stem))
    return [`${path}: the name says nothing: name the noun`];
  return [];
}

function sizeViolations({ path, text }: SourceFile): string[] {
  const lines = text.split("\n").length - 1;
  if (lines <= linesMax || path.endsWith(".sql.ts")) return [];
  return [`${path}: has ${String(lines)} lines, more than ${String(linesMax)}`];
}

function importViolations(file: SourceFile): string[] {
  const place = placeOf(file.path);
  if (place === undefined) return [`${file.path}: belongs to no part of the architecture`];
  return read(file).imports.flatMap((specifier) => {
    const target = resolveImport(file.path, specifier);
    const reason =
      target === undefined ? packageReason(file.path, specifier) : orderReason(file.path, target);
    return reason === undefined ? [] : [`${file.path}: imports ${specifier}: ${reason}`];
  });
}

function packageReason(path: string, specifier: string): string | undefined {
  if (specifier.startsWith("node:")) {
    return withoutNode.test(path) ? "this part runs without Node" : undefined;
  }
  const rule = confined.find(({ packages }) => packages.test(specifier));
  if (rule === undefined || rule.allowed.test(path)) return undefined;
  return `only files that match ${rule.allowed.source} may`;
}

function orderReason(from: string, to: string): string | undefined {
  if (from === showsExample && to.startsWith("examples/")) return undefined;
  if (!to.startsWith("src/")) return "src imports nothing outside src";
  if (changesSchema.test(to) && !mayChangeSchema.test(from)) return "only cli and dev change the schema";
  const [source, target] = [placeOf(from), placeOf(to)];
  if (source === undefined || target === undefined || source.part === target.part) {
    return innerReason(from, to);
  }
  if (source.part === "client") return target.part === "wire" ? undefined : "client imports wire only";
  if (source.part === "console") {
    return ["wire", "client"].includes(target.part) ? undefined : "console imports wire and client only";
  }
  if (source.index > target.index) return undefined;
  return `${source.part} comes before ${target.part}, or beside it`;
}

/** One runtime or blob store never leans on another of them. */
function innerReason(from: string, to: string): string | undefined {
  const [, part, source] = from.split("/");
  const target = to.split("/")[2];
  if (part !== "runtimes" && part !== "blobs") return undefined;
  return source === target ? undefined : `${String(source)} stands beside ${String(target)}`;
}

function placeOf(path: string): { readonly part: string; readonly index: number } | undefined {
  const part = path.split("/")[1]?.replace(/\.ts$/, "") ?? "";
  const index = places.findIndex((parts) => parts.includes(part));
  return index === -1 ? undefined : { part, index };
}

interface Read {
  readonly imports: readonly string[];
  readonly environment: boolean;
}

/** Each file is read once, however often it is looked at beside others. */
const readings = new WeakMap<SourceFile, Read>();

function read(file: SourceFile): Read {
  let reading = readings.get(file);
  if (reading === undefined) {
    const code = withoutComments(file.text);
    reading = { imports: importsIn(code), environment: /\bprocess\s*(\?\.|\.)\s*env\b/.test(code) };
    readings.set(file, reading);
  }
  return reading;
}

/** Type imports count: a type is a dependency of the reader. */
function importsIn(code: string): string[] {
  const patterns = [
    /^\s*(?:import|export)\s[^;"'`]*?from\s*["']([^"']+)["']/gm,
    /^\s*import\s*["']([^"']+)["']/gm,
    /\bimport\(\s*["']([^"']+)["']/g,
  ];
  return patterns.flatMap((pattern) => Array.from(code.matchAll(pattern), (found) => found[1] ?? ""));
}

function resolveImport(from: string, specifier: string): string | undefined {
  return specifier.startsWith(".") ? posix.join(posix.dirname(from), specifier) : undefined;
}

function environmentViolations(file: SourceFile): string[] {
  const { path } = file;
  if (readsEnvironment.test(path) || !read(file).environment) return [];
  return [`${path}: reads process.env: take it from config.ts`];
}

/** Good enough for our own formatted code: strings stay, so `//` inside one must not begin a comment. */
function withoutComments(text: string): string {
  return text.replaceAll(
    /("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\[\s\S])*`)|\/\*[\s\S]*?\*\/|\/\/[^\n]*/g,
    (_whole, kept: string | undefined) => kept ?? " ",
  );
}

/** Each cycle once, from its first file in alphabetical order. */
function cycles(files: readonly SourceFile[]): string[] {
  const graph = new Map(
    files.map((file) => [
      file.path,
      read(file).imports.flatMap((specifier) => resolveImport(file.path, specifier) ?? []),
    ]),
  );
  const found = new Set<string>();
  const done = new Set<string>();
  const visit = (path: string, trail: readonly string[]) => {
    const start = trail.indexOf(path);
    if (start !== -1) found.add(cycleLine(trail.slice(start)));
    if (start !== -1 || done.has(path)) return;
    for (const next of graph.get(path) ?? []) visit(next, [...trail, path]);
    done.add(path);
  };
  for (const path of graph.keys()) visit(path, []);
  return [...found];
}

function cycleLine(members: readonly string[]): string {
  const first = members.reduce((least, path) => (path < least ? path : least));
  const at = members.indexOf(first);
  return `${[...members.slice(at), ...members.slice(0, at), first].join(" → ")}: a cycle`;
}
