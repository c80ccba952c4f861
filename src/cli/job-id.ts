import type { Client } from "../client/client.ts";
import { HoldfastError } from "../wire/holdfast-error.ts";
import { UsageError } from "./failures.ts";
import { visible } from "./visible.ts";

const fullId = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const searchedMax = 2000;
const plural = { job: "jobs", session: "sessions", delivery: "deliveries", work: "work items" } as const;

/** A job's id from what was typed. */
export function jobIdOf(client: Client, typed: string): Promise<string> {
  return idOf("job", typed, "holdfast get jobs", () => client.listJobs({ limit: 200 }));
}

export function sessionIdOf(client: Client, typed: string): Promise<string> {
  return idOf("session", typed, "holdfast get sessions", () => client.listSessions({ limit: 200 }));
}

export function deliveryIdOf(client: Client, typed: string): Promise<string> {
  return idOf("delivery", typed, "holdfast get deliveries", () => client.listDeliveries({ limit: 200 }));
}

export function workIdOf(client: Client, typed: string): Promise<string> {
  return idOf("work", typed, "holdfast get work", () => client.listWork({ limit: 200 }));
}

/** The whole id, or its beginning when no other of the newest has it too. */
async function idOf(
  kind: keyof typeof plural,
  typed: string,
  lister: string,
  all: () => AsyncIterable<{ readonly id: string }>,
): Promise<string> {
  const text = typed.toLowerCase().replace(new RegExp(`^${kind}s?/`), "");
  if (fullId.test(text)) return text;
  if (!/^[0-9a-f][0-9a-f-]{7,35}$/.test(text)) {
    throw new UsageError(
      `${JSON.stringify(visible(typed))} is not a ${kind} id`,
      `Give the id that \`${lister}\` lists, or at least its first 8 characters.`,
    );
  }
  const found: string[] = [];
  let searched = 0;
  for await (const { id } of all()) {
    if (id.startsWith(text)) found.push(id);
    searched += 1;
    if (found.length > 5 || searched >= searchedMax) break;
  }
  const [only] = found;
  if (only === undefined) throw new HoldfastError("not_found", `no ${kind}'s id begins with ${text}`);
  if (found.length > 1)
    throw new UsageError(`several ${plural[kind]}' ids begin with ${text}: ${found.join(", ")}`);
  return only;
}
