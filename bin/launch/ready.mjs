import { join } from "node:path";
import { installPackages } from "./install.mjs";
import { isNodeSupported, pinnedNode, tooOld } from "./node.mjs";
import { root } from "./root.mjs";

/** Installs what the checkout is missing and gives the Node to run it with. */
export async function makeReady() {
  const locks = join(root, ".holdfast");
  const packages = installPackages({ folder: root, locks, name: "packages", title: "packages" });
  const node = isNodeSupported(process.version) ? process.execPath : installNode(locks);
  // One that fails does not leave the other behind: its npm ends when it has finished.
  const [chosen, installed] = await Promise.allSettled([node, packages]);
  for (const result of [chosen, installed]) if (result.status === "rejected") throw result.reason;
  return chosen.value;
}

async function installNode(locks) {
  const node = pinnedNode(root);
  if (node === null) throw tooOld(`, and none is pinned for ${process.platform}-${process.arch}`);
  const title = `the pinned Node (${process.version} here is too old)`;
  await installPackages({ folder: join(root, "toolchain"), locks, name: "node", title });
  return node;
}
