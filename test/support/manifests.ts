import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseAllDocuments } from "yaml";

export const deployFolder = resolve(import.meta.dirname, "../../deploy");
const kubernetes = join(deployFolder, "kubernetes");

/** One object as its file has it. */
export type Manifest = Readonly<Record<string, unknown>>;

/** What stands at a path such as `spec.template.spec`; undefined when something on the way is missing. */
export function at(value: unknown, path: string): unknown {
  return path
    .split(".")
    .reduce<unknown>(
      (found, name) => (isRecord(found) || Array.isArray(found) ? Reflect.get(found, name) : undefined),
      value,
    );
}

export const listAt = (value: unknown, path: string): unknown[] => {
  const found = at(value, path);
  return Array.isArray(found) ? found : [];
};

export const textAt = (value: unknown, path: string): string => {
  const found = at(value, path);
  return typeof found === "string" ? found : "";
};

export const nameOf = (manifest: unknown): string => textAt(manifest, "metadata.name");

export function documentsOf(text: string): Manifest[] {
  return parseAllDocuments(text).map((document) => {
    const [problem] = document.errors;
    if (problem !== undefined) throw problem;
    const value: unknown = document.toJS();
    if (!isRecord(value)) throw new Error("a document is no object");
    return value;
  });
}

/** The kustomization of a folder below `deploy/kubernetes`. */
export function kustomization(folder: string): Manifest {
  const [only, ...others] = documentsOf(readFileSync(join(kubernetes, folder, "kustomization.yaml"), "utf8"));
  if (only === undefined || others.length > 0) throw new Error(`${folder}: not one kustomization`);
  return only;
}

/** The objects that a folder's kustomization lists as files. */
export function manifestsOf(folder: string): Manifest[] {
  return listAt(kustomization(folder), "resources")
    .map(String)
    .filter((name) => name.endsWith(".yaml"))
    .flatMap((name) => documentsOf(readFileSync(join(kubernetes, folder, name), "utf8")));
}

/** What a ConfigMap says after base and overlay, in their order. */
export function settingsOf(name: string, ...folders: readonly string[]): Record<string, string> {
  const literals = folders.flatMap((folder) =>
    listAt(kustomization(folder), "configMapGenerator")
      .filter((one) => textAt(one, "name") === name)
      .flatMap((one) => listAt(one, "literals").map(String)),
  );
  return Object.fromEntries(literals.map((line) => line.split(/=(.*)/s).slice(0, 2)));
}

/** The first container, which is the only one. */
export const containerOf = (workload: unknown): unknown => at(workload, "spec.template.spec.containers.0");

/** What a container's own `env` says: a value, or the key of a Secret. */
export function environmentOf(container: unknown): { name: string; value: string | null; secret: string }[] {
  return listAt(container, "env").map((one) => ({
    name: textAt(one, "name"),
    value: at(one, "value") === undefined ? null : textAt(one, "value"),
    secret: textAt(one, "valueFrom.secretKeyRef.name"),
  }));
}

/** What a policy allows, a line a peer: `holdfast gateway → 192.0.2.1/32 TCP 5432`. */
export function allowedBy(policy: unknown): string[] {
  const subject = `${textAt(policy, "metadata.namespace")} ${selected(at(policy, "spec.podSelector"))}`;
  const lines = (direction: "egress" | "ingress", peers: "to" | "from", arrow: string) =>
    listAt(policy, `spec.${direction}`).flatMap((rule) => {
      const ports = listAt(rule, "ports").map(
        (port) => `${textAt(port, "protocol")} ${String(at(port, "port"))}`,
      );
      const whom = listAt(rule, peers).map(peerText);
      // A rule without peers or ports allows all of them, and must not look like one that allows none.
      return (whom.length === 0 ? ["everybody"] : whom).map(
        (peer) => `${subject} ${arrow} ${peer} ${ports.join(", ") || "every port"}`,
      );
    });
  return [...lines("egress", "to", "→"), ...lines("ingress", "from", "←")];
}

function peerText(peer: unknown): string {
  const block = textAt(peer, "ipBlock.cidr");
  if (block !== "") return block;
  const names = at(peer, "namespaceSelector.matchLabels");
  const [[label, name] = ["", ""]] = isRecord(names) ? Object.entries(names) : [];
  const namespace = label === "kubernetes.io/metadata.name" ? String(name) : `namespaces with ${label}`;
  return `${namespace} ${selected(at(peer, "podSelector"))}`;
}

function selected(selector: unknown): string {
  const labels = at(selector, "matchLabels");
  if (!isRecord(labels)) return "all";
  const component = textAt(
    { labels: [labels["app.kubernetes.io/component"] ?? labels["k8s-app"]] },
    "labels.0",
  );
  const values = listAt(selector, "matchExpressions.0.values").map(String);
  return component || values.join("+") || "holdfast";
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
