import { createHash } from "node:crypto";
import { posix } from "node:path";

/** What rules that know types can say of a file depends on: its text, and that of all it imports, however far. */
export interface Sources {
  /** Texts by path below the root, with `/`. */
  readonly texts: ReadonlyMap<string, string>;
  /** What counts for all of them: configuration, and what is installed. */
  readonly shared: readonly string[];
  /** What the package's own names stand for (`paths` of tsconfig.json): `holdfast/work` → `src/work/sdk.ts`. */
  readonly named: ReadonlyMap<string, string>;
}

const code = /\.([cm]?[jt]s|tsx|jsx)$/;
/** They change types in files that don't import them. */
const ambient = /\bdeclare (global|module)\b/;
/** More than imports, and so never less. */
const quoted = /["'`]((?:\.{1,2}|holdfast)\/[^"'`\n]+)["'`]/g;

/** A digest for each file of code: as long as it is the same, so is what the rules say. */
export function closureDigests({ texts, shared, named }: Sources): Map<string, string> {
  // Numbered in the order of their names: most files reach most others, and a text for each would be sorted each time.
  const paths = [...texts.keys()].toSorted();
  const numbers = new Map(paths.map((path, number) => [path, number]));
  const own = paths.map((path) => digest([path, texts.get(path) ?? ""]));
  const everywhere = paths.flatMap((path, number) =>
    ambient.test(texts.get(path) ?? "") ? [own[number] ?? ""] : [],
  );
  const common = digest([...shared, ...everywhere]);
  const imports = paths.map((path) =>
    importsOf(path, texts.get(path) ?? "", { texts, named }).flatMap((target) => numbers.get(target) ?? []),
  );
  const found = new Map<string, string>();
  for (const path of texts.keys()) {
    const number = numbers.get(path);
    if (number === undefined || !code.test(path)) continue;
    const closure = reached(number, imports).map((one) => own[one] ?? "");
    found.set(path, digest([path, common, ...closure]));
  }
  return found;
}

function importsOf(path: string, text: string, { texts, named }: Pick<Sources, "texts" | "named">): string[] {
  return Array.from(
    text.matchAll(quoted),
    ([, target = ""]) => named.get(target) ?? posix.join(posix.dirname(path), target),
  ).flatMap((target) =>
    // A program's types stand beside it.
    [target, target.replace(/\.([cm]?)js$/, ".d.$1ts")].filter((one) => texts.has(one)),
  );
}

/** In order, with where it begins. */
function reached(from: number, imports: readonly (readonly number[])[]): number[] {
  const seen = new Uint8Array(imports.length);
  seen[from] = 1;
  const next = [from];
  for (let at = next.pop(); at !== undefined; at = next.pop()) {
    for (const one of imports[at] ?? []) {
      if (seen[one] === 1) continue;
      seen[one] = 1;
      next.push(one);
    }
  }
  return [...seen.keys()].filter((number) => seen[number] === 1);
}

function digest(parts: readonly string[]): string {
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex");
}
