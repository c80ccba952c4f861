/** How the API server is reached. Credentials are asked for before each request, so that rotated ones are used. */
export interface KubernetesConnection {
  /** `https://host:port`, with a path if the server stands behind one. `http` only for a test on loopback. */
  readonly server: string;
  credentials(): Promise<KubernetesCredentials>;
}

/** A header, a client certificate, or neither. PEM texts. Never logged. */
export interface KubernetesCredentials {
  /** The `Authorization` header, `Bearer …`. */
  readonly authorization?: string;
  readonly ca?: string | Buffer;
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  readonly passphrase?: string;
  /** The name that the server's certificate must carry, if not the host's. */
  readonly servername?: string;
  /** False only where a kubeconfig says so: then nobody knows who the server is. */
  readonly rejectUnauthorized?: boolean;
}
