import type { ConnectionSettings } from "../../src/core/postgres/pool.ts";

/** Counts handlers: how many have run, how many at once. */
export interface Counter {
  readonly enter: () => void;
  readonly leave: () => void;
}

/** One engine on a database of its own, driven through what its documentation calls its fastest setting. */
export interface Engine {
  readonly name: string;
  /** Of the items, for one that would take minutes; 1 when left out. */
  readonly share?: number;
  /** Accepts items in bulk, as its documentation says. */
  readonly submitAll: (count: number) => Promise<void>;
  readonly submit: () => Promise<void>;
  /** Begins to run what waits, up to `concurrency` handlers at once; gives what ends it. */
  readonly run: (concurrency: number, counter: Counter) => Promise<() => Promise<void>>;
  /** A query whose one number is the items that are not settled yet; null: the last handler's return has to do. */
  readonly waiting: string | null;
  readonly close: () => Promise<void>;
}

export type OpenEngine = (database: ConnectionSettings, url: string) => Promise<Engine>;
