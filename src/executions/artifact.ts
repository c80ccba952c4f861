import type { FieldError } from "../core/errors.ts";
import type { ArtifactReport } from "../wire/callback.ts";

/** What is wrong with a manifest beyond its schema: a path that leads somewhere else, or a name twice. */
export function artifactFault(report: ArtifactReport): FieldError | null {
  const seen = new Set<string>();
  for (const [index, { name }] of report.files.entries()) {
    const pointer = `/files/${index}/name`;
    const parts = name.split("/");
    if (parts.some((part) => part === "" || part === "." || part === "..") || name.includes("\\")) {
      return {
        pointer,
        message: "a relative path with `/` between its parts, none of them empty, `.` or `..`",
      };
    }
    if (!name.isWellFormed()) return { pointer, message: "a path is well-formed Unicode" };
    if (seen.has(name)) return { pointer, message: "each name stands once" };
    seen.add(name);
  }
  return null;
}
