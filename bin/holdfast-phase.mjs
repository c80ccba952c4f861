#!/usr/bin/env node
// The helper inside a sandbox. It starts at once: nothing is installed here.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isNodeSupported, pinnedNode, tooOld } from "./launch/node.mjs";
import { root } from "./launch/root.mjs";

const sources = join(root, "src", "sandboxes", "phase-helper.ts");
const helper = existsSync(sources) ? sources : join(root, "dist", "sandboxes", "phase-helper.js");
const pinned = pinnedNode(root);

if (isNodeSupported(process.version)) {
  await import(pathToFileURL(helper).href);
} else if (pinned !== null && existsSync(pinned)) {
  const { runChild } = await import("./launch/child.mjs");
  process.exit(await runChild(pinned, [helper, ...process.argv.slice(2)]));
} else {
  process.stderr.write(`holdfast-phase: ${tooOld("").message}\n`);
  process.exit(1);
}
