import { existsSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isNodeSupported, pinnedNode, tooOld } from "./node.mjs";
import { root } from "./root.mjs";

/** Runs a program of a sandbox in this process when its Node is new enough, else with the pinned one. */
export async function startInSandbox(name, part, module) {
  const sources = join(root, "src", part, `${module}.ts`);
  const program = existsSync(sources) ? sources : join(root, "dist", part, `${module}.js`);
  const pinned = pinnedNode(root);

  if (isNodeSupported(process.version)) {
    await import(pathToFileURL(program).href);
  } else if (pinned !== null && existsSync(pinned)) {
    const { runChild } = await import("./child.mjs");
    process.exit(await runChild(pinned, [program, ...process.argv.slice(2)]));
  } else {
    process.stderr.write(`${name}: ${tooOld("").message}\n`);
    process.exit(1);
  }
}
