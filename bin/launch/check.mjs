import { spawn } from "node:child_process";
import { delimiter, dirname, join } from "node:path";

/** Each check's name and command; programs are those of node_modules/.bin, except node itself. */
const checks = [
  // As far as anything changed since it passed: it takes longer than all others together.
  ["types and lint", ["node", "scripts/lint-types.ts"]],
  ["format", ["biome", "check", "--error-on-warnings"]],
  ["architecture", ["node", "--test", "--test-reporter=dot", "test/architecture.test.ts"]],
];

/** Runs all checks at once, prints each one's result as it ends, and gives the exit status. */
export async function runChecks(root, node) {
  const path = [join(root, "node_modules", ".bin"), dirname(node), process.env.PATH].join(delimiter);
  const results = await Promise.all(checks.map(([name, command]) => runCheck(root, path, name, command)));
  const failed = results.filter((result) => !result.passed).map((result) => result.name);
  process.stdout.write(failed.length === 0 ? "all checks pass\n" : `failed: ${failed.join(", ")}\n`);
  return failed.length === 0 ? 0 : 1;
}

async function runCheck(root, path, name, [program, ...args]) {
  const started = performance.now();
  const { status, output } = await run(program, args, root, { ...process.env, PATH: path });
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  process.stdout.write(`${status === 0 ? "✔" : "✖"} ${name} (${seconds} s)\n`);
  if (status !== 0) process.stdout.write(`${output.trim()}\n\n`);
  return { name, passed: status === 0 };
}

function run(program, args, cwd, env) {
  const shell = process.platform === "win32";
  const child = spawn(program, args, { cwd, env, shell, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text) => (output += text));
  }
  return new Promise((resolve) => {
    child.once("error", (error) => resolve({ status: 1, output: error.message }));
    child.once("close", (status) => resolve({ status, output }));
  });
}
