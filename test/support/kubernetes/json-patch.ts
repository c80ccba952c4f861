import { isDeepStrictEqual } from "node:util";
import { badRequest, opaque } from "./status.ts";

type Container = Record<string, unknown> | unknown[];

/** RFC 6902 as the API server's library does it: `test` with null passes on an absent member. */
export function applyPatch(document: object, operations: unknown): Record<string, unknown> {
  if (!Array.isArray(operations)) {
    throw badRequest(
      "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
    );
  }
  const root = structuredClone(document) as Record<string, unknown>;
  for (const operation of operations) applyOne(root, operation as Record<string, unknown>);
  return root;
}

function applyOne(root: Record<string, unknown>, operation: Record<string, unknown>): void {
  const { op, path, value } = operation;
  if (typeof path !== "string" || !path.startsWith("/")) throw opaque();
  const steps = path
    .slice(1)
    .split("/")
    .map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  const key = steps.pop() ?? "";
  const parent = steps.reduce<unknown>((at, step) => read(at, step), root);
  if (!isContainer(parent)) throw opaque();
  switch (op) {
    case "test":
      if (!isDeepStrictEqual(read(parent, key) ?? null, value ?? null)) throw opaque();
      return;
    case "add":
      add(parent, key, value);
      return;
    case "replace":
      if (read(parent, key) === undefined) throw opaque();
      write(parent, key, value);
      return;
    case "remove":
      if (read(parent, key) === undefined) throw opaque();
      remove(parent, key);
      return;
    default:
      throw opaque();
  }
}

const isContainer = (value: unknown): value is Container => typeof value === "object" && value !== null;

function read(at: unknown, key: string): unknown {
  if (Array.isArray(at)) return /^\d+$/.test(key) ? at[Number(key)] : undefined;
  return isContainer(at) && Object.hasOwn(at, key) ? Reflect.get(at, key) : undefined;
}

function add(at: Container, key: string, value: unknown): void {
  if (!Array.isArray(at)) at[key] = value;
  else if (key === "-") at.push(value);
  else if (/^\d+$/.test(key) && Number(key) <= at.length) at.splice(Number(key), 0, value);
  else throw opaque();
}

function write(at: Container, key: string, value: unknown): void {
  if (Array.isArray(at)) at[Number(key)] = value;
  else at[key] = value;
}

function remove(at: Container, key: string): void {
  if (Array.isArray(at)) at.splice(Number(key), 1);
  else delete at[key];
}

/** RFC 7386. */
export function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isContainer(patch) || Array.isArray(patch)) return patch;
  const result = isContainer(target) && !Array.isArray(target) ? { ...target } : {};
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) delete result[key];
    else result[key] = mergePatch(result[key], value);
  }
  return result;
}
