#!/usr/bin/env node
// What `npm start`, `npm test` and the other scripts of package.json run: `node bin/run.mjs TASK [ARGUMENT …]`.
// Plain JavaScript without dependencies, because it starts on an older Node in a checkout without packages.
import { runChecks } from "./launch/check.mjs";
import { runChild } from "./launch/child.mjs";
import { makeReady } from "./launch/ready.mjs";
import { main, root } from "./launch/root.mjs";

const biome = "node_modules/@biomejs/biome/bin/biome";

/** Each task is given the Node to use and its arguments, and gives the exit status. */
const tasks = {
  start: (node, args) => runChild(node, ["src/cli/main.ts", "start", ...args], { cwd: root }),
  test: (node, args) => runChild(node, ["test/support/run-tests.ts", ...args], { cwd: root }),
  "test:cluster": (node, args) =>
    runChild(node, ["test/support/run-cluster-tests.ts", ...args], { cwd: root }),
  "gate:work": (node, args) => runChild(node, ["test/support/run-work-gate.ts", ...args], { cwd: root }),
  check: (node) => runChecks(root, node),
  "bench-work": (node, args) => runChild(node, ["bench/work/run.ts", ...args], { cwd: root }),
  build: (node, args) => runChild(node, ["scripts/build.ts", ...args], { cwd: root }),
  bench: (node, [name, ...args]) => runChild(node, [`bench/${name}.ts`, ...args], { cwd: root }),
  screenshots: (node, args) => runChild(node, ["scripts/screenshots.ts", ...args], { cwd: root }),
  format: (node, args) => runChild(node, [biome, "check", "--write", ...args], { cwd: root }),
  generate: async (node, args) => {
    for (const script of ["generate-statements.ts", "openapi.ts", "guarantees.ts"]) {
      const status = await runChild(node, [`scripts/${script}`, ...args], { cwd: root });
      if (status !== 0) return status;
    }
    return 0;
  },
};

await main(async () => {
  const [name, ...args] = process.argv.slice(2);
  if (!Object.hasOwn(tasks, name ?? "")) {
    process.stderr.write(`usage: node bin/run.mjs ${Object.keys(tasks).join("|")} [ARGUMENT …]\n`);
    return 2;
  }
  return tasks[name](await makeReady(), args);
});
