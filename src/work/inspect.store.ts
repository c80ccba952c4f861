import { HoldfastError } from "../core/errors.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import type { SuspensionReason, WorkDetail, WorkPayload, WorkStateName, WorkView } from "../wire/work.ts";
import * as sql from "./inspect.sql.ts";
import { revisionOf, workDetail, workView } from "./view.ts";
import { readPayload as readPayloadRow } from "./work.sql.ts";
import { inspection } from "./work.store.ts";

export interface WorkFilter {
  readonly state: WorkStateName | null;
  readonly name: string | null;
  readonly version: string | null;
  readonly queue: string | null;
  /** Why it is suspended. */
  readonly reason: SuspensionReason | null;
}

/** A page that fits fewer than `limit` is not the last one: `next` is null on that. */
export interface WorkPage {
  readonly items: readonly WorkView[];
  /** Below this id the next page looks. */
  readonly next: string | null;
}

/** Rows that one page looks at, whatever it finds: a rare state among a million is found over several pages. */
export const lookMax = 2_000;
const beyondAll = "ffffffff-ffff-ffff-ffff-ffffffffffff";

/** Newest first, by ids, which are in time order unless their callers made them otherwise. */
export async function listWork(
  tx: Transaction,
  filter: WorkFilter,
  page: { readonly before: string | null; readonly limit: number; readonly look?: number },
): Promise<WorkPage> {
  // Only what is suspended has a reason to be.
  const state = filter.state ?? (filter.reason === null ? null : "suspended");
  const from = { state, before: page.before ?? beyondAll, look: BigInt(page.look ?? lookMax) };
  const rows = await tx.run(sql.listWork, { ...filter, ...from, limit: BigInt(page.limit) + 1n });
  const found = rows.slice(0, page.limit);
  if (rows.length > page.limit) return { items: found.map(workView), next: found.at(-1)?.work_id ?? null };
  const { seen, last } = await tx.run(sql.lookForWork, from);
  return { items: found.map(workView), next: seen < from.look ? null : last };
}

/** Throws `not_found`. */
export async function readSummary(tx: Transaction, work: string): Promise<sql.ReadSummaryRow> {
  const row = await tx.run(sql.readSummary, { work });
  if (row === undefined) throw new HoldfastError("not_found", "there is no such work");
  return row;
}

/** With its row locked: what is decided on it stays true until the commit. */
export async function lockedRevision(tx: Transaction, work: string): Promise<bigint> {
  await tx.run(sql.lockWork, { work });
  return revisionOf(await readSummary(tx, work));
}

export async function readDetail(tx: Transaction, work: string): Promise<WorkDetail> {
  const row = await readSummary(tx, work);
  return workDetail(row, await inspection(tx, work), await tx.run(sql.readCircuit, { work }));
}

/** The payload, which no inspection, log or metric has. */
export async function readWorkPayload(tx: Transaction, work: string): Promise<WorkPayload> {
  const row = await tx.run(readPayloadRow, { work });
  if (row === undefined) throw new HoldfastError("not_found", "there is no such work");
  const late = await tx.run(sql.readLateResults, { work });
  return { input: row.input, result: row.result, late_results: late };
}
