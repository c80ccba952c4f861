import { sep } from "node:path";

/** A path of an archive as its parts, or undefined when it doesn't stay below the folder that it is unpacked to. */
export function partsInside(path: string): readonly string[] | undefined {
  if (path.startsWith("/") || path.includes("\0")) return undefined;
  // Where a backslash or a drive letter would mean something.
  if (sep !== "/" && /[\\:]/.test(path)) return undefined;
  const parts = path.split("/").filter((part) => part !== "" && part !== ".");
  return parts.includes("..") ? undefined : parts;
}

/**
 * Whether a symbolic link stays inside. Its folder is a real one, so leading `..` climb exactly; a `..` after a
 * name could climb from wherever another link leads, and is never taken.
 */
export function linkStaysInside(path: string, target: string): boolean {
  if (target === "" || target.startsWith("/") || target.includes("\0")) return false;
  if (sep !== "/" && /[\\:]/.test(target)) return false;
  const parts = target.split("/").filter((part) => part !== "" && part !== ".");
  const climbs = parts.findIndex((part) => part !== "..");
  const up = climbs === -1 ? parts.length : climbs;
  const depth = path.split("/").length - 1;
  return up <= depth && !parts.slice(up).includes("..");
}
