import { Client } from "pg";

/** A statement as the driver got it; bytes as hex, to go through JSON. */
export interface Recorded {
  readonly name: string | null;
  readonly text: string;
  readonly values: readonly unknown[];
}

const background = /^(lookout|change\.(lockSequencer|stampChanges|readPositions|readCounter)|incarnation)/;

/** Every statement that this process sends while the body runs, but for those of its loops. */
export async function recorded(body: () => Promise<void>): Promise<Recorded[]> {
  const statements: { client: object; statement: Recorded }[] = [];
  const prototype = Client.prototype as unknown as { query: (...args: unknown[]) => unknown };
  const { query } = prototype;
  prototype.query = function (this: object, ...args: unknown[]) {
    const [asked] = args;
    const statement =
      typeof asked === "string"
        ? { name: null, text: asked, values: [] }
        : (asked as { name?: string; text: string; values?: readonly unknown[] });
    statements.push({
      client: this,
      statement: {
        name: statement.name ?? null,
        text: statement.text,
        values: (statement.values ?? []).map(portable),
      },
    });
    return query.apply(this, args);
  };
  try {
    await body();
  } finally {
    prototype.query = query;
  }
  const loops = new Set(
    statements.filter(({ statement }) => background.test(statement.name ?? "")).map(({ client }) => client),
  );
  return statements.filter(({ client }) => !loops.has(client)).map(({ statement }) => statement);
}

function portable(value: unknown): unknown {
  if (Buffer.isBuffer(value)) return { hex: value.toString("hex") };
  return typeof value === "bigint" ? value.toString() : value;
}
