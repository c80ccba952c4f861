import type { RatePolicy } from "./rate-limit.ts";

/** Every bound of the public listener, in one place. Units stand last. */
export interface GatewayLimits {
  readonly bodyBytes: number;
  readonly headerBytes: number;
  /** Header lines; Node would drop those beyond its own bound without a word. */
  readonly headerLines: number;
  readonly jsonDepth: number;
  /** For a whole request to arrive, headers and body. */
  readonly requestMs: number;
  /** For a socket on which nothing moves. */
  readonly idleSocketMs: number;
  /** Requests of one principal to this process; null: as many as it likes. */
  readonly rate: RatePolicy | null;
  /** Principals whose requests are counted at a time. */
  readonly rateKeys: number;
  /** Credentials that were not good, of one address to this process; null: as many as it likes. */
  readonly failedLogins: RatePolicy | null;
  /** Addresses whose failed logins are counted at a time, and credentials that are known to be good. */
  readonly failedLoginKeys: number;
  /** Open streams of one principal in this process. */
  readonly streamsPerPrincipal: number;
  /** What waits for a reader of a stream before that reader is cut off. */
  readonly streamBufferBytes: number;
  /** How long a stream's reader may take nothing at all. */
  readonly streamStallMs: number;
  readonly heartbeatMs: number;
  /** How often the token behind an open stream is looked up again. */
  readonly tokenCheckMs: number;
  /** How many changes a stream reads at once while it catches up. */
  readonly watchBatch: number;
  readonly pageItems: number;
  /** What a client is told to wait before it opens a broken stream again. */
  readonly reconnectMs: number;
}

export const defaultLimits: GatewayLimits = {
  bodyBytes: 262_144,
  headerBytes: 16_384,
  headerLines: 100,
  jsonDepth: 32,
  requestMs: 15_000,
  idleSocketMs: 75_000,
  rate: { requests: 3_000, windowSeconds: 10 },
  rateKeys: 10_000,
  failedLogins: { requests: 100, windowSeconds: 60 },
  failedLoginKeys: 10_000,
  streamsPerPrincipal: 64,
  streamBufferBytes: 1_048_576,
  streamStallMs: 30_000,
  heartbeatMs: 15_000,
  tokenCheckMs: 5_000,
  watchBatch: 200,
  pageItems: 200,
  reconnectMs: 1_000,
};
