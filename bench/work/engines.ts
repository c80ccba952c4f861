import { dbos } from "./dbos.ts";
import type { OpenEngine } from "./engine.ts";
import { holdfast } from "./holdfast.ts";
import { bareLoop, bullmq, graphileWorker, pgBoss } from "./peers.ts";

export const engineNames = ["holdfast", "strict", "graphile", "boss", "bullmq", "dbos", "bare"] as const;

/** By its short name; `file` is the bundled package. */
export function engineOf(name: string, file: string): OpenEngine {
  switch (name) {
    case "holdfast":
      return holdfast(file, "idempotent");
    case "strict":
      return holdfast(file, "manual_resolution");
    case "graphile":
      return graphileWorker;
    case "boss":
      return pgBoss;
    case "bullmq":
      return bullmq;
    case "dbos":
      return dbos;
    case "bare":
      return bareLoop;
    default:
      throw new Error(`there is no engine ${name}`);
  }
}
