import type { Client } from "../client/client.ts";
import { type CommandContext, printValue, type ServerFlags } from "./context.ts";
import { tableText } from "./table.ts";
import type { Colors } from "./terminal.ts";
import { watchChanges } from "./watch-changes.ts";

export interface ListFlags extends ServerFlags {
  readonly limit: number;
}

/** How resources of one kind are shown in a list. */
export interface Shown<T> {
  /** As in `job/ID`, and of its changes. */
  readonly kind: string;
  readonly heading: readonly string[];
  row(item: T, now: number): readonly string[];
  /** What a program calls it by: its id, or its name where that is what commands take. */
  nameOf(item: T): string;
  /** Said when there is nothing to show. */
  readonly none: string;
  color?(cell: string, column: number, colors: Colors): string;
}

/** What was asked for one by one, with what finds each. */
export interface Named<T> {
  readonly typed: readonly string[];
  get(typed: string): Promise<T>;
}

/** `holdfast get KIND [ID…]`: those that were named, else the newest. */
export async function getList<T>(
  context: CommandContext,
  flags: ListFlags,
  shown: Shown<T>,
  list: (pageSize: number) => AsyncIterable<T>,
  named: Named<T> | null = null,
): Promise<readonly T[]> {
  const items: T[] = [];
  if (named === null || named.typed.length === 0) {
    items.push(...(await firstOf(list(Math.min(flags.limit, 200)), flags.limit)));
  } else {
    for (const text of named.typed) items.push(await named.get(text));
  }
  await printList(context, flags, shown, items, named?.typed.length === 1);
  return items;
}

async function firstOf<T>(list: AsyncIterable<T>, limit: number): Promise<T[]> {
  const items: T[] = [];
  for await (const item of list) {
    items.push(item);
    if (items.length >= limit) break;
  }
  return items;
}

/** One alone is printed as itself for programs, several as `items`. */
export async function printList<T>(
  context: CommandContext,
  { output }: ServerFlags,
  shown: Shown<T>,
  items: readonly T[],
  alone: boolean,
): Promise<void> {
  const { terminal, now } = context;
  if (output === "json" || output === "yaml") {
    return printValue(context, output, alone ? items[0] : { items });
  }
  if (output === "name") {
    return terminal.out(items.map((item) => `${shown.kind}/${shown.nameOf(item)}\n`).join(""));
  }
  if (items.length === 0) return terminal.err(`${shown.none}\n`);
  const rows = items.map((item) => shown.row(item, now()));
  await terminal.out(
    tableText(shown.heading, rows, (cell, column) => shown.color?.(cell, column, terminal.colors) ?? cell),
  );
}

/** What `--watch` shows after the list: a kind's resources as they change, one JSON value a line for programs. */
export async function watchList<T>(
  context: CommandContext,
  flags: ServerFlags,
  client: Client,
  shown: Shown<T>,
  watched: { readonly after: string; get(id: string): Promise<T>; fits(item: T): boolean },
): Promise<void> {
  for await (const { kind, id } of watchChanges(client, { after: watched.after, kind: shown.kind })) {
    if (kind !== shown.kind) continue;
    const item = await watched.get(id);
    if (!watched.fits(item)) continue;
    if (flags.output === "json") await context.terminal.out(`${JSON.stringify(item)}\n`);
    else await printList(context, flags, shown, [item], true);
  }
}

export function labelText(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
}
