#!/usr/bin/env node
// The command line: bundled in the published package, straight from the sources in a checkout.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isNodeSupported, tooOld } from "./launch/node.mjs";
import { main, root } from "./launch/root.mjs";

const sources = join(root, "src", "cli", "main.ts");
const bundle = join(root, "dist", "cli", "main.js");

if (existsSync(sources)) {
  await main(async () => {
    const { makeReady } = await import("./launch/ready.mjs");
    const { runChild } = await import("./launch/child.mjs");
    return runChild(await makeReady(), [sources, ...process.argv.slice(2)]);
  });
} else if (isNodeSupported(process.version)) {
  await import(pathToFileURL(bundle).href);
} else {
  await main(() => {
    throw tooOld("");
  });
}
