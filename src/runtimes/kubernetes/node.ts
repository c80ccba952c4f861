import { isApiError, isRecord } from "./api-error.ts";
import type { PodApi } from "./pod-api.ts";

const wordsLengthMax = 300;

/**
 * What a node says of itself, for a person who has to decide what became of a pod on it. It proves nothing: a node
 * that is called lost may run on, and so may one whose object was deleted (E8). Free of what changes with every
 * look, so that the same trouble reads the same.
 */
export async function nodeWords(api: PodApi, name: string, signal: AbortSignal): Promise<string> {
  try {
    const node = await api.node(name, signal);
    if (node === null) return `there is no node object ${name} any more`;
    return `its node is ${[readyWords(node), ...taintWords(node)].join(", ")}`.slice(0, wordsLengthMax);
  } catch (error) {
    signal.throwIfAborted();
    if (isApiError(error, 403)) return "its node can't be read: the role lacks `get` on nodes";
    return "its node can't be read now";
  }
}

function readyWords(node: Readonly<Record<string, unknown>>): string {
  const ready = listOf(node, "status", "conditions").find(({ type }) => type === "Ready");
  if (ready === undefined) return "without a condition";
  const { status, reason, lastTransitionTime } = ready;
  return `Ready=${text(status)} (${text(reason)}) since ${text(lastTransitionTime)}`;
}

const taintWords = (node: Readonly<Record<string, unknown>>): string[] =>
  listOf(node, "spec", "taints")
    .map(({ key, effect }) => `${text(key)}:${text(effect)}`)
    .filter((taint) => taint.startsWith("node.kubernetes.io/"))
    .sort();

function listOf(node: Readonly<Record<string, unknown>>, part: "spec" | "status", name: string) {
  const inner = node[part];
  const list = isRecord(inner) ? inner[name] : undefined;
  return Array.isArray(list) ? list.filter(isRecord) : [];
}

const text = (value: unknown): string => (typeof value === "string" ? value : "unknown");
