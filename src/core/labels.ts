import { jobLimits } from "../wire/job.ts";
import { type FieldError, HoldfastError } from "./errors.ts";

export type Labels = Readonly<Record<string, string>>;

/** A merge patch (RFC 7396): a label set to null is removed. */
export function mergeLabels(present: Labels, patch: Readonly<Record<string, string | null>>): Labels {
  const merged = new Map<string, string | null>([...Object.entries(present), ...Object.entries(patch)]);
  return Object.fromEntries([...merged].flatMap(([name, value]) => (value === null ? [] : [[name, value]])));
}

export function sameLabels(a: Labels, b: Labels): boolean {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}

/** What no schema bounds: how many there are after a patch, and how many bytes are stored. */
export function labelFaults(labels: Labels, pointer: string): FieldError[] {
  const bytes = Object.entries(labels).reduce(
    (sum, [name, value]) => sum + Buffer.byteLength(name) + Buffer.byteLength(value),
    0,
  );
  const fault = (message: string): FieldError => ({ pointer, message });
  return [
    ...(Object.keys(labels).length > jobLimits.labelsMax
      ? [fault(`at most ${jobLimits.labelsMax} labels`)]
      : []),
    ...(bytes > jobLimits.labelsBytesMax
      ? [fault(`names and values take at most ${jobLimits.labelsBytesMax} bytes together`)]
      : []),
  ];
}

export function refuseFaults(fields: readonly FieldError[]): void {
  const [first] = fields;
  if (first !== undefined) throw new HoldfastError("invalid_request", first.message, { fields });
}
