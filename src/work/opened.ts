import { HoldfastError } from "../core/errors.ts";
import type { Doorbell } from "../core/postgres/doorbell.ts";
import type { ConnectionSettings } from "../core/postgres/settings.ts";
import type { Database } from "../core/postgres/transition.ts";
import type { Work } from "./handle.ts";
import type { SubmitCall } from "./submissions.ts";
import type { Submitted } from "./submit.ts";

/** What is behind a `Work`: connections, and whom to wake. The package's types don't mention it. */
export interface OpenedWork extends Work {
  readonly db: Database;
  readonly doorbell: Doorbell;
  readonly settings: ConnectionSettings;
  readonly onError: (error: unknown, what: string) => void;
  /** Up to `batchMax` items of one caller. */
  readonly submitShared: (call: SubmitCall) => Promise<Submitted[]>;
}

export function isOpenedWork(on: object): on is OpenedWork {
  return "doorbell" in on && "db" in on;
}

export function openedWork(work: Work): OpenedWork {
  if (!isOpenedWork(work)) throw new HoldfastError("invalid_request", "this needs what `openWork` gives");
  return work;
}
