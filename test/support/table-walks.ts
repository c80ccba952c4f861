type Ask = <Row extends object>(text: string, values: readonly unknown[]) => Promise<Row[]>;

/** What grows with the work that waits and that is finished. */
const grown = ["leases_work", "work_items", "work_history", "work_attempts"];

/**
 * How often each table of Work has been read from end to end: by all, or by this session in what it has not reported
 * yet, which is at least its transaction.
 */
export function tableWalks(
  ask: Ask,
  counted: "pg_stat_user_tables" | "pg_stat_xact_user_tables" = "pg_stat_user_tables",
): Promise<{ readonly table: string; readonly walks: number }[]> {
  return ask(
    `select relname as table, seq_scan::int as walks from ${counted} where relname = any ($1::text[]) order by 1`,
    [grown],
  );
}
