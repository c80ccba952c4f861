import { Client } from "pg";

/** A statement as the driver got it; bytes as hex, to go through JSON. */
export interface Recorded {
  readonly name: string | null;
  readonly text: string;
  readonly values: readonly unknown[];
}

const background = /^(lookout|change\.(lockSequencer|stampChanges|readPositions|readCounter)|incarnation)/;

function statementOf(asked: unknown): Recorded {
  if (typeof asked === "string") return { name: null, text: asked, values: [] };
  if (typeof asked !== "object" || asked === null) throw new Error("the driver was asked for nothing");
  const { name, text, values = [] }: { name?: unknown; text?: unknown; values?: unknown } = asked;
  if (typeof text !== "string" || !Array.isArray(values)) throw new Error("no statement has this shape");
  return { name: typeof name === "string" ? name : null, text, values: values.map(portable) };
}

/** Every statement that this process sends while the body runs, but for those of its loops. */
export async function recorded(body: () => Promise<void>): Promise<Recorded[]> {
  const statements: { client: object; statement: Recorded }[] = [];
  const query: unknown = Reflect.get(Client.prototype, "query");
  if (typeof query !== "function") throw new Error("the driver's clients have no query");
  const set = (value: unknown) => Reflect.set(Client.prototype, "query", value);
  set(function (this: object, ...args: unknown[]): unknown {
    statements.push({ client: this, statement: statementOf(args[0]) });
    return Reflect.apply(query, this, args);
  });
  try {
    await body();
  } finally {
    set(query);
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
