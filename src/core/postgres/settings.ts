/** Where the server is and who logs in. The login is a member of the roles that its process plays. */
export interface ConnectionSettings {
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  readonly password: string;
  /** Read at each new connection, in place of `password`, so that a rotated one needs no restart. */
  readonly passwordFile?: string;
  readonly tls?: { readonly ca?: string; readonly rejectUnauthorized: boolean };
  /**
   * This address is a pooler that gives each transaction any of its connections. Such a connection can't be told its
   * role when it begins, so each role has a login of its own, USER_ROLE, which the server gives role and limits.
   */
  readonly pooler?: "transaction";
  /** Past the pooler: for what belongs to a session, which LISTEN does, renewals, and the schema's lock. */
  readonly direct?: ConnectionSettings;
}

export interface PoolLimits {
  /** Connections of each role that the process plays. */
  readonly connectionsMax: number;
  readonly statementTimeoutMs: number;
  readonly lockTimeoutMs: number;
  readonly transactionTimeoutMs: number;
  readonly idleInTransactionMs: number;
  readonly connectTimeoutMs: number;
  /** A pooled connection goes after so long, when nobody uses it: none stays for good with a server that its address has left. */
  readonly lifetimeSeconds: number;
}
