import { spawnSync } from "node:child_process";
import { run } from "node:test";
import { spec } from "node:test/reporters";

/** What one run came to, told from its events and from nothing that it prints. */
export interface Verdict {
  readonly passed: number;
  /** Why the gate is shut: each failed, skipped or postponed test, and each promise that nothing showed. */
  readonly faults: readonly string[];
}

/** Of one file and all its tests: nothing hangs. */
const timeoutMs = 300_000;

/**
 * Runs test files under rules that `node --test` lacks: a test that was skipped or is still to be done counts as a
 * failed one, and each promise of the list has to be named by the title of a test that passed.
 */
export async function runStrictly(
  files: readonly string[],
  promises: readonly string[],
  output: NodeJS.WritableStream | null,
): Promise<Verdict> {
  const faults: string[] = [];
  const shown = new Set<string>();
  let passed = 0;
  const stream = run({ files: [...files], concurrency: 2, timeout: timeoutMs });
  stream.on("test:fail", ({ name, file }) => void faults.push(`failed: ${name} (${file ?? "?"})`));
  stream.on("test:pass", ({ name, skip, todo, details }) => {
    if (skip !== undefined && skip !== false) faults.push(`skipped: ${name}`);
    else if (todo !== undefined && todo !== false) faults.push(`to be done: ${name}`);
    else if (details.type !== "suite") {
      passed += 1;
      for (const [id] of (name.split(":")[0] ?? "").matchAll(/\b[A-Z]\d+\b/g)) shown.add(id);
    }
  });
  if (output !== null) stream.compose(spec).pipe(output, { end: false });
  else stream.resume();
  await new Promise((resolve, reject) => stream.once("end", resolve).once("error", reject));
  for (const id of promises) if (!shown.has(id)) faults.push(`no test showed ${id}`);
  if (passed === 0) faults.push("no test ran");
  return { passed, faults };
}

/** For a test of the gate: a runner inside a test does nothing, so it has a process of its own. */
export function runInNewProcess(files: readonly string[], promises: readonly string[]): Verdict {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    [import.meta.filename, JSON.stringify({ files, promises })],
    { env, encoding: "utf8", timeout: timeoutMs },
  );
  if (status !== 0) throw new Error(stderr);
  return JSON.parse(stdout) as Verdict;
}

if (import.meta.main) {
  const { files, promises } = JSON.parse(process.argv[2] ?? "") as Record<"files" | "promises", string[]>; // written above
  console.log(JSON.stringify(await runStrictly(files, promises, null)));
}
