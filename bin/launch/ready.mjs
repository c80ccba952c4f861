import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { installPackages } from "./install.mjs";
import { isNodeSupported, pinnedNode, tooOld } from "./node.mjs";

export const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");

/** Installs what the checkout is missing and gives the Node to run it with. */
export async function makeReady() {
  const locks = join(root, ".holdfast");
  const packages = installPackages({ folder: root, locks, name: "packages", title: "packages" });
  const node = isNodeSupported(process.version) ? Promise.resolve(process.execPath) : installNode(locks);
  return (await Promise.all([node, packages]))[0];
}

async function installNode(locks) {
  const node = pinnedNode(root);
  if (node === null) throw tooOld(`, and none is pinned for ${process.platform}-${process.arch}`);
  const title = `the pinned Node (${process.version} here is too old)`;
  await installPackages({ folder: join(root, "toolchain"), locks, name: "node", title });
  return node;
}

/** Runs the body and exits with its status; an error is one line, without a stack. */
export async function main(body) {
  try {
    process.exitCode = await body();
  } catch (error) {
    process.stderr.write(`holdfast: ${error instanceof Error ? error.message : String(error)}\n`);
    process.exitCode = 1;
  }
  // Our signal handlers would keep nothing running, but a child's channel might.
  process.exit();
}
