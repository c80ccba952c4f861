import * as cluster from "./kubernetes.ts";
import * as opensandbox from "./opensandbox.ts";
import * as read from "./readers.ts";

/** One key of the environment. `docs/reference/config.md` documents each, and a test holds the two to each other. */
interface Key<Value> {
  readonly name: string;
  /** Used when the key is not set. Without one the value is null. */
  readonly fallback?: string;
  /** May also come from the file that NAME_FILE names, and is never shown. */
  readonly secret?: true;
  /** Throws an error whose message continues the key's name. */
  readonly read: (text: string) => Value;
}

export type KeyTable = Readonly<Record<string, Key<unknown>>>;
export type KeyReaders = typeof configKeys;

export const configKeys = {
  // Store
  database: { name: "HOLDFAST_DATABASE_URL", secret: true, read: read.postgresUrl },
  databaseDirect: { name: "HOLDFAST_DATABASE_DIRECT_URL", secret: true, read: read.postgresUrl },
  installation: { name: "HOLDFAST_INSTALLATION", read: read.installation },

  // Listeners
  host: { name: "HOLDFAST_HOST", fallback: "127.0.0.1", read: read.host },
  port: { name: "HOLDFAST_PORT", fallback: "7717", read: read.port },
  operatorApi: { name: "HOLDFAST_OPERATOR_API", fallback: "false", read: read.yesOrNo },
  drainDelay: { name: "HOLDFAST_DRAIN_DELAY", fallback: "0s", read: read.durationUpTo("5m") },
  callbackHost: { name: "HOLDFAST_CALLBACK_HOST", fallback: "127.0.0.1", read: read.host },
  callbackPort: { name: "HOLDFAST_CALLBACK_PORT", fallback: "7718", read: read.port },
  callbackUrl: { name: "HOLDFAST_CALLBACK_URL", read: read.httpUrl },
  callbackKeysFile: { name: "HOLDFAST_CALLBACK_KEYS_FILE", read: read.path },

  // Outside
  runtime: {
    name: "HOLDFAST_RUNTIME",
    fallback: "process",
    read: read.oneOf("process", "kubernetes", "opensandbox"),
  },
  sandboxDirectory: { name: "HOLDFAST_SANDBOX_DIRECTORY", read: read.path },
  secretsDirectory: { name: "HOLDFAST_SECRETS_DIRECTORY", read: read.path },
  signingKeysDirectory: { name: "HOLDFAST_SIGNING_KEYS_DIRECTORY", read: read.path },
  blobStore: { name: "HOLDFAST_BLOB_STORE", fallback: "directory", read: read.oneOf("directory", "s3") },
  blobDirectory: { name: "HOLDFAST_BLOB_DIRECTORY", read: read.path },
  s3Endpoint: { name: "HOLDFAST_S3_ENDPOINT", read: read.httpUrl },
  s3PublicEndpoint: { name: "HOLDFAST_S3_PUBLIC_ENDPOINT", read: read.httpUrl },
  s3Region: { name: "HOLDFAST_S3_REGION", fallback: "us-east-1", read: read.regionName },
  s3Bucket: { name: "HOLDFAST_S3_BUCKET", read: read.bucketName },
  s3AccessKeyId: { name: "HOLDFAST_S3_ACCESS_KEY_ID", read: read.token },
  s3SecretAccessKey: { name: "HOLDFAST_S3_SECRET_ACCESS_KEY", secret: true, read: read.token },
  s3PathStyle: { name: "HOLDFAST_S3_PATH_STYLE", fallback: "false", read: read.yesOrNo },
  directCommand: { name: "HOLDFAST_DIRECT_COMMAND", fallback: "docker", read: read.anyText },

  // Kubernetes
  kubernetesNamespace: { name: "HOLDFAST_KUBERNETES_NAMESPACE", read: cluster.dnsLabel },
  kubernetesConfig: { name: "HOLDFAST_KUBECONFIG", read: read.path },
  kubernetesContext: { name: "HOLDFAST_KUBERNETES_CONTEXT", read: read.anyText },
  kubernetesImage: { name: "HOLDFAST_KUBERNETES_IMAGE", read: cluster.imageName },
  kubernetesRunAs: { name: "HOLDFAST_KUBERNETES_RUN_AS", fallback: "65532:65532", read: cluster.runAs },
  kubernetesNodeSelector: { name: "HOLDFAST_KUBERNETES_NODE_SELECTOR", read: cluster.nodeSelector },
  kubernetesTolerations: { name: "HOLDFAST_KUBERNETES_TOLERATIONS", read: cluster.tolerations },
  kubernetesPullSecrets: { name: "HOLDFAST_KUBERNETES_IMAGE_PULL_SECRETS", read: cluster.objectNames },
  kubernetesRuntimeClass: { name: "HOLDFAST_KUBERNETES_RUNTIME_CLASS", read: cluster.objectName },
  kubernetesPriorityClass: { name: "HOLDFAST_KUBERNETES_PRIORITY_CLASS", read: cluster.objectName },
  kubernetesReadNodes: { name: "HOLDFAST_KUBERNETES_READ_NODES", fallback: "false", read: read.yesOrNo },

  // Identity
  oidcIssuer: { name: "HOLDFAST_OIDC_ISSUER", read: read.issuer },
  oidcAudience: { name: "HOLDFAST_OIDC_AUDIENCE", read: read.token },
  oidcJwksUrl: { name: "HOLDFAST_OIDC_JWKS_URL", read: read.httpUrl },
  oidcTenantClaim: { name: "HOLDFAST_OIDC_TENANT_CLAIM", fallback: "tenant", read: read.claimName },
  oidcScopesClaim: { name: "HOLDFAST_OIDC_SCOPES_CLAIM", fallback: "scope", read: read.claimName },
  egressAllow: { name: "HOLDFAST_EGRESS_ALLOW", read: read.networks },

  // OpenSandbox
  openSandboxUrl: { name: "HOLDFAST_OPENSANDBOX_URL", read: read.httpUrl },
  openSandboxApiKey: { name: "HOLDFAST_OPENSANDBOX_API_KEY", secret: true, read: read.token },
  openSandboxImage: { name: "HOLDFAST_OPENSANDBOX_IMAGE", read: cluster.imageName },
  openSandboxServerProxy: {
    name: "HOLDFAST_OPENSANDBOX_SERVER_PROXY",
    fallback: "true",
    read: read.yesOrNo,
  },
  openSandboxEgress: { name: "HOLDFAST_OPENSANDBOX_EGRESS", read: opensandbox.egressTargets },
  openSandboxLinger: { name: "HOLDFAST_OPENSANDBOX_LINGER", fallback: "1h", read: read.duration },

  // Limits
  rate: { name: "HOLDFAST_RATE_LIMIT", fallback: "3000/10s", read: read.rate },
  streamsMax: { name: "HOLDFAST_STREAMS_MAX", fallback: "64", read: read.wholeNumber(1, 10_000) },
  queueMax: { name: "HOLDFAST_QUEUE_MAX", fallback: "1000", read: read.wholeNumber(1, 1_000_000) },
  runsMax: { name: "HOLDFAST_RUNS_MAX", fallback: "32", read: read.wholeNumber(1, 100_000) },
  sessionsMax: { name: "HOLDFAST_SESSIONS_MAX", fallback: "100", read: read.wholeNumber(1, 10_000) },
  artifactRetention: { name: "HOLDFAST_ARTIFACT_RETENTION", fallback: "30d", read: read.duration },
  logBytesMax: {
    name: "HOLDFAST_LOG_BYTES_MAX",
    fallback: "16MiB",
    read: read.bytes(65_536, 1_073_741_824),
  },
  logRetention: { name: "HOLDFAST_LOG_RETENTION", fallback: "30d", read: read.duration },
  commandRetention: {
    name: "HOLDFAST_COMMAND_RETENTION",
    fallback: "30d",
    read: read.durationFrom("30d"),
  },
  deliveryRetention: {
    name: "HOLDFAST_DELIVERY_RETENTION",
    fallback: "30d",
    read: read.durationFrom("7d"),
  },
  workRetention: { name: "HOLDFAST_WORK_RETENTION", read: read.durationFrom("1d") },
  workObservationRetention: {
    name: "HOLDFAST_WORK_OBSERVATION_RETENTION",
    read: read.namedDurationsFrom("1d"),
  },
  changeRetention: { name: "HOLDFAST_CHANGE_RETENTION", fallback: "30d", read: read.durationFrom("1h") },

  // The process's own log
  logLevel: {
    name: "HOLDFAST_LOG_LEVEL",
    fallback: "info",
    read: read.oneOf("fatal", "error", "warn", "info", "debug", "trace", "silent"),
  },

  // Command line and client
  url: { name: "HOLDFAST_URL", read: read.httpUrl },
  token: { name: "HOLDFAST_TOKEN", secret: true, read: read.token },
  context: { name: "HOLDFAST_CONTEXT", read: read.anyText },
  configHome: { name: "XDG_CONFIG_HOME", read: read.path },
  noColor: { name: "NO_COLOR", read: read.present },
  terminal: { name: "TERM", read: read.anyText },
} as const satisfies KeyTable;
