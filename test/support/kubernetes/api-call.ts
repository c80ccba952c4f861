import { isRecord } from "../../../src/runtimes/kubernetes/api-error.ts";
import { annotations } from "../../../src/runtimes/kubernetes/pod-marks.ts";
import type { PodObject } from "./pod-object.ts";

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly body: string;
  /** What it is for: `create`, `get` …; a PATCH is to `fence`, `release`, `lower`, `stop` or `finalize`. */
  readonly verb: string;
  /** Of the pod that it is about; empty when it is about none that is there. */
  readonly tenant: string;
  /** Once it is answered. */
  status?: number;
}

/** `find`: the pod that a name has now. */
export function seenRequest(
  method: string,
  { pathname: path, searchParams: query }: URL,
  body: string,
  find: (name: string) => PodObject | undefined,
): SeenRequest {
  const [, name, log] = /\/pods(?:\/([^/]+))?(\/log)?$/.exec(path) ?? [];
  const value = parse(body);
  const about = method === "POST" ? value : name === undefined ? null : find(name);
  const tenant = tenantOf(about);
  const verb = log === undefined ? verbOf(method, name, query, value) : "log";
  return { method, path, query, body, verb, tenant };
}

function verbOf(method: string, name: string | undefined, query: URLSearchParams, body: unknown): string {
  if (method === "POST") return "create";
  if (method === "DELETE") return "delete";
  if (method === "PATCH") return patchVerb(body);
  if (name !== undefined) return "get";
  return query.has("watch") ? "watch" : "list";
}

function patchVerb(body: unknown): string {
  const operations: readonly unknown[] = Array.isArray(body) ? body : [];
  const paths = operations
    .filter(isRecord)
    .filter(({ op }) => op !== "test")
    .map(({ path }) => String(path));
  const writes = (member: string) => paths.some((path) => path.includes(member));
  if (writes("/schedulingGates")) return "release";
  if (writes("/finalizers")) return "finalize";
  if (writes("~1stop")) return "stop";
  return writes("/activeDeadlineSeconds") ? "lower" : "fence";
}

function tenantOf(pod: unknown): string {
  if (!isRecord(pod) || !isRecord(pod.metadata) || !isRecord(pod.metadata.annotations)) return "";
  const tenant = pod.metadata.annotations[annotations.tenant];
  return typeof tenant === "string" ? tenant : "";
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
