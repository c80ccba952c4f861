import { createHash } from "node:crypto";
import { posix } from "node:path";

/** What rules that know types can say of a file depends on: its text, and that of all it imports, however far. */
export interface Sources {
  /** Texts by path below the root, with `/`. */
  readonly texts: ReadonlyMap<string, string>;
  /** What counts for all of them: configuration, and what is installed. */
  readonly shared: readonly string[];
  /** The types of the built package, for what imports it by its name. */
  readonly built: readonly string[];
}

const code = /\.([cm]?[jt]s|tsx|jsx)$/;
const ownPackage = /\bfrom\s+["']holdfast\//;
/** They change types in files that don't import them. */
const ambient = /\bdeclare (global|module)\b/;
/** More than imports, and so never less. */
const relative = /["'`](\.{1,2}\/[^"'`\n]+)["'`]/g;

/** A digest for each file of code: as long as it is the same, so is what the rules say. */
export function closureDigests({ texts, shared, built }: Sources): Map<string, string> {
  const own = new Map([...texts].map(([path, text]) => [path, digest([path, text])]));
  const everywhere = [...texts].flatMap(([path, text]) => (ambient.test(text) ? [own.get(path) ?? ""] : []));
  const imports = new Map([...texts].map(([path, text]) => [path, importsOf(path, text, texts)]));
  const types = digest(built);
  const found = new Map<string, string>();
  for (const path of texts.keys()) {
    if (!code.test(path)) continue;
    const closure = [...reached(path, imports)].toSorted();
    const outside = closure.some((one) => ownPackage.test(texts.get(one) ?? "")) ? [types] : [];
    const parts = closure.map((one) => own.get(one) ?? "");
    found.set(path, digest([path, ...shared, ...everywhere, ...outside, ...parts]));
  }
  return found;
}

function importsOf(path: string, text: string, texts: ReadonlyMap<string, string>): string[] {
  return Array.from(text.matchAll(relative), ([, target = ""]) =>
    posix.join(posix.dirname(path), target),
  ).flatMap((target) =>
    // A program's types stand beside it.
    [target, target.replace(/\.([cm]?)js$/, ".d.$1ts")].filter((one) => texts.has(one)),
  );
}

function reached(from: string, imports: ReadonlyMap<string, readonly string[]>): Set<string> {
  const all = new Set([from]);
  // A set is walked in the order in which it grows.
  for (const path of all) for (const next of imports.get(path) ?? []) all.add(next);
  return all;
}

function digest(parts: readonly string[]): string {
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
}
