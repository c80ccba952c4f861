import { HoldfastError } from "../core/errors.ts";

/** Null: no header. `any`: whatever is there. Otherwise the versions of which one has to be there. */
export type IfMatch = null | "any" | readonly bigint[];

export function etagOf(version: bigint | string): string {
  return `"${version}"`;
}

const entityTag = /[ \t]*(W\/)?"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*(,|$)/y;
const versionTag = /^(?:0|[1-9]\d{0,18})$/;

/** Strong comparison (RFC 9110, 13.1.1): a weak tag, or one that was never given out, matches nothing. */
export function parseIfMatch(header: string | undefined): IfMatch {
  if (header === undefined) return null;
  if (header.trim() === "*") return "any";
  const versions: bigint[] = [];
  entityTag.lastIndex = 0;
  for (;;) {
    const found = entityTag.exec(header);
    if (found === null) throw new HoldfastError("invalid_request", "If-Match is not a list of entity tags");
    const [, weak, tag = "", separator] = found;
    if (weak === undefined && versionTag.test(tag)) versions.push(BigInt(tag));
    if (separator === "") return versions;
  }
}

/** Where a blind write would lose somebody's data. */
export function requireIfMatch(condition: IfMatch): Exclude<IfMatch, null> {
  if (condition === null) {
    throw new HoldfastError("precondition_required", "this change needs the ETag of what it changes");
  }
  return condition;
}

/** Refuses a caller who knows another version (G4). */
export function checkVersion(condition: IfMatch, version: bigint): void {
  if (condition === null || condition === "any" || condition.includes(version)) return;
  throw new HoldfastError("precondition_failed", `the resource is at ${etagOf(version)}`);
}

/** Whether there must be none yet. On a mutation `*` is the only condition that means something. */
export function parseIfNoneMatch(header: string | undefined): boolean {
  if (header === undefined) return false;
  if (header.trim() === "*") return true;
  throw new HoldfastError("invalid_request", "If-None-Match of a mutation is * or nothing");
}
