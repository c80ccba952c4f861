#!/usr/bin/env node
// The command line: bundled in the published package, straight from the sources in a checkout.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { runChild } from "./launch/child.mjs";
import { isNodeSupported, tooOld } from "./launch/node.mjs";
import { main, makeReady, root } from "./launch/ready.mjs";

const sources = join(root, "src", "cli", "main.ts");
const bundle = join(root, "dist", "cli", "main.js");

if (!existsSync(sources) && isNodeSupported(process.version)) {
  await import(pathToFileURL(bundle).href);
} else {
  await main(async () => {
    if (!existsSync(sources)) throw tooOld("");
    return runChild(await makeReady(), [sources, ...process.argv.slice(2)]);
  });
}
