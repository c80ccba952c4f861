/** Where the server is and who logs in. The login is a member of the roles that its process plays. */
export interface ConnectionSettings {
  readonly host: string;
  readonly port: number;
  readonly database: string;
  readonly user: string;
  readonly password: string;
  readonly tls?: { readonly ca?: string; readonly rejectUnauthorized: boolean };
}

export interface PoolLimits {
  /** Connections of each role that the process plays. */
  readonly connectionsMax: number;
  readonly statementTimeoutMs: number;
  readonly lockTimeoutMs: number;
  readonly transactionTimeoutMs: number;
  readonly idleInTransactionMs: number;
  readonly connectTimeoutMs: number;
}
