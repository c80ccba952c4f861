import type { Client } from "../client/client.ts";
import { HoldfastError } from "../wire/holdfast-error.ts";
import { UsageError } from "./failures.ts";
import { visible } from "./visible.ts";

const fullId = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const searchedMax = 2000;

/** A job's id from what was typed: the whole id, or its beginning when no other of the newest jobs has it too. */
export async function jobIdOf(client: Client, typed: string): Promise<string> {
  const text = typed.toLowerCase().replace(/^jobs?\//, "");
  if (fullId.test(text)) return text;
  if (!/^[0-9a-f][0-9a-f-]{7,35}$/.test(text)) {
    throw new UsageError(
      `${JSON.stringify(visible(typed))} is not a job id`,
      "Give the id that `holdfast get jobs` lists, or at least its first 8 characters.",
    );
  }
  const found: string[] = [];
  let searched = 0;
  for await (const { id } of client.listJobs({ limit: 200 })) {
    if (id.startsWith(text)) found.push(id);
    searched += 1;
    if (found.length > 5 || searched >= searchedMax) break;
  }
  const [only] = found;
  if (only === undefined) throw new HoldfastError("not_found", `no job's id begins with ${text}`);
  if (found.length > 1) throw new UsageError(`several jobs' ids begin with ${text}: ${found.join(", ")}`);
  return only;
}
