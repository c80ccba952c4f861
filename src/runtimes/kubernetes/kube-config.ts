import type { RequestOptions } from "node:https";
import type { KubeConfig } from "@kubernetes/client-node";
import { HoldfastError } from "../../core/errors.ts";
import type { KubernetesConnection, KubernetesCredentials } from "./connection.ts";

export type ConnectionSource =
  | { readonly kind: "kubeconfig"; readonly path: string; readonly context?: string }
  /** The service account of the pod that this process runs in. Its token is read again as it is rotated. */
  | { readonly kind: "in-cluster" };

/**
 * A connection as the official client reads it: kubeconfig with its plug-ins, or the service account. That client
 * is large, so it is loaded only where it is used.
 */
export async function connectionFrom(
  source: ConnectionSource,
): Promise<{ readonly connection: KubernetesConnection; readonly namespace: string | null }> {
  const config = await load(source);
  const cluster = config.getCurrentCluster();
  if (cluster === null || !URL.canParse(cluster.server) || new URL(cluster.server).hostname === "undefined") {
    throw invalid(
      source.kind === "in-cluster" ? "this process runs in no pod" : "the kubeconfig names no cluster",
    );
  }
  // Such as of a proxy on loopback. The client refuses it only when something is asked.
  if (new URL(cluster.server).protocol === "http:" && !cluster.skipTLSVerify) {
    throw invalid("a server without TLS needs insecure-skip-tls-verify: true in the kubeconfig");
  }
  // What can't be passed on must not be left out in silence.
  if (cluster.proxyUrl !== undefined) throw invalid("a proxy of the kubeconfig (proxy-url) is not supported");
  const connection = { server: cluster.server, credentials: () => credentialsOf(config) };
  return { connection, namespace: config.getContextObject(config.getCurrentContext())?.namespace ?? null };
}

async function load(source: ConnectionSource): Promise<KubeConfig> {
  const { KubeConfig: Config } = await import("@kubernetes/client-node");
  const config = new Config();
  try {
    if (source.kind === "in-cluster") config.loadFromCluster();
    else config.loadFromFile(source.path);
    if (source.kind === "kubeconfig" && source.context !== undefined)
      config.setCurrentContext(source.context);
  } catch (error) {
    throw invalid(`the Kubernetes configuration can't be read: ${String(error)}`);
  }
  return config;
}

async function credentialsOf(config: KubeConfig): Promise<KubernetesCredentials> {
  const options: RequestOptions = {};
  await config.applyToHTTPSOptions(options);
  const { headers, auth, ca, cert, key, passphrase, servername, rejectUnauthorized } = options;
  const header: unknown = headers === undefined ? undefined : Reflect.get(headers, "Authorization");
  const basic = typeof auth === "string" ? `Basic ${Buffer.from(auth).toString("base64")}` : undefined;
  const authorization = typeof header === "string" ? header : basic;
  return {
    ...(authorization === undefined ? {} : { authorization: authorization.trim() }),
    ...(isPem(ca) ? { ca } : {}),
    ...(isPem(cert) ? { cert } : {}),
    ...(isPem(key) ? { key } : {}),
    ...(passphrase === undefined ? {} : { passphrase }),
    ...(servername === undefined ? {} : { servername }),
    ...(rejectUnauthorized === undefined ? {} : { rejectUnauthorized }),
  };
}

const isPem = (value: unknown): value is string | Buffer =>
  typeof value === "string" || Buffer.isBuffer(value);

const invalid = (message: string): HoldfastError => new HoldfastError("invalid_configuration", message);
