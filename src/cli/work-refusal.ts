import { ApiError, type Client, type WorkDetail } from "../client/client.ts";
import { Advised } from "./failures.ts";
import { proofSentence, stateSentence } from "./work-words.ts";

export type WorkVerb = "cancel" | "resolve" | "release" | "requeue" | "suspend";

const done: Readonly<Record<WorkVerb, string>> = {
  cancel: "cancelled",
  resolve: "resolved",
  release: "released",
  requeue: "requeued",
  suspend: "suspended",
};

/**
 * The server refuses what an item's state does not allow, and the database that says so knows only half of a finished
 * one. What the item is now says why, and what is left to do. Whoever may not read it keeps the server's own words.
 */
export async function explained(
  client: Pick<Client, "getWork">,
  verb: WorkVerb,
  id: string,
  error: unknown,
  now: number,
): Promise<unknown> {
  if (!(error instanceof ApiError) || error.code !== "conflict") return error;
  const work = await client.getWork(id).catch(() => null);
  const why = work === null ? null : refusal(verb, work, now);
  if (why === null) return error;
  return new Advised("conflict", why, "`holdfast describe work ID` tells everything that happened to it.");
}

/** Null where the state explains nothing: it has changed since, or the request names another attempt. */
export function refusal(verb: WorkVerb, work: WorkDetail, now: number): string | null {
  if (verb === "resolve" && work.outcome_unknown) return null;
  const proven = work.attempt_log.findLast(({ proof }) => proof !== null);
  const settled =
    verb === "resolve" && proven?.proof ? ` ${proofSentence(proven.attempt, proven.proof)}.` : "";
  const nothing = verb === "resolve" && settled === "" ? " No attempt of it has an unknown outcome." : "";
  return `${work.id} can't be ${done[verb]}: it is ${stateSentence(work, now)}.${settled}${nothing}`;
}
