/**
 * One direct connection to PostgreSQL, never through a transaction-mode pooler: the migration lock belongs to
 * the session. The driver's client fits; naming only this keeps the driver out of here.
 */
export interface SchemaSession {
  query(text: string, values?: unknown[]): Promise<{ readonly rows: unknown[] }>;
}

/** The rows of a query whose columns stand in the text beside the call. */
export async function rowsOf<Row>(
  session: SchemaSession,
  text: string,
  values: unknown[] = [],
): Promise<Row[]> {
  const { rows } = await session.query(text, values);
  return rows as Row[];
}

/** Run the body in one transaction; what it throws goes on after the rollback. */
export async function inTransaction<T>(session: SchemaSession, body: () => Promise<T>): Promise<T> {
  await session.query("begin");
  try {
    const result = await body();
    await session.query("commit");
    return result;
  } catch (error) {
    // A dead connection has rolled back already, and its own error is the one worth telling.
    await session.query("rollback").catch(() => undefined);
    throw error;
  }
}
