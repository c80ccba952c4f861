import type { Kernel } from "./kernel.ts";

/**
 * Which of all pairs of states the database lets a row move along, told by its own triggers: each is tried in a
 * transaction that is rolled back, on a row put into the first state behind the triggers' backs.
 */
export async function acceptedEdges(
  { ask }: Pick<Kernel, "ask">,
  row: {
    readonly table: string;
    /** Which row, as a condition. */
    readonly where: string;
    readonly states: readonly string[];
    /** What the check constraints want beside each state: assignments. */
    readonly beside: (state: string) => string;
  },
): Promise<Set<string>> {
  const accepted = new Set<string>();
  const set = (state: string) =>
    ask(
      `update ${row.table} set state = '${state}', ${row.beside(state)} where ${row.where} returning state`,
    );
  for (const from of row.states) {
    for (const to of row.states) {
      if (from === to) continue;
      await ask("begin");
      try {
        await ask("set local session_replication_role = replica");
        if ((await set(from)).length !== 1) throw new Error("there is no such row");
        await ask("set local session_replication_role = origin");
        if ((await set(to)).length === 1) accepted.add(`${from}>${to}`);
      } catch (error) {
        // Refused for its edge, and for nothing else.
        if (!(error instanceof Error && "code" in error && error.code === "HF003")) throw error;
      } finally {
        await ask("rollback");
      }
    }
  }
  return accepted;
}

/** The pairs that a table of transitions has. */
export function edgesOf(
  table: Readonly<Record<string, Readonly<Record<string, string | null>>>>,
): Set<string> {
  return new Set(
    Object.entries(table).flatMap(([from, events]) =>
      Object.values(events).flatMap((to) => (to === null ? [] : [`${from}>${to}`])),
    ),
  );
}
