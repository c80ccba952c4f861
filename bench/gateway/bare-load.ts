import { randomUUID } from "node:crypto";
import { Client } from "pg";
import type { Recorded } from "./recording.ts";

/**
 * What pgbench would do: each client sends the statements of one admission, one after the other, as prepared
 * statements, and again. Ids and keys are new each time.
 */
const { connection, statements, fresh, owner, owners, clients, seconds } = JSON.parse(
  process.argv[2] ?? "{}",
) as {
  readonly connection: object;
  readonly statements: readonly Recorded[];
  /** Values of the recording that have to be new each time. */
  readonly fresh: { readonly ids: readonly string[]; readonly key: string };
  /** Whoever was recorded, and who asks instead of it. */
  readonly owner: Owner;
  readonly owners: readonly Owner[];
  readonly clients: number;
  readonly seconds: number;
};

interface Owner {
  readonly tenant: string;
  readonly principal: string;
  /** Of the token, in hex. */
  readonly hash: string;
}

const until = performance.now() + seconds * 1000;
const delays: number[] = [];

const isBytes = (value: unknown): value is { readonly hex: string } =>
  typeof value === "object" && value !== null && "hex" in value;

async function load(n: number): Promise<void> {
  const client = new Client({
    ...connection,
    options: "-c role=holdfast_gateway -c search_path=pg_catalog,pg_temp",
  });
  await client.connect();
  const self = owners[n % owners.length] ?? owner;
  for (let count = 0; performance.now() < until; count += 1) {
    const started = performance.now();
    const ids = new Map(fresh.ids.map((id) => [id, randomUUID()]));
    for (const { name, text, values } of statements) {
      const own = values.map((value) => {
        if (value === fresh.key) return `bare-${process.pid}-${n}-${count}`;
        if (value === owner.tenant) return self.tenant;
        if (value === owner.principal) return self.principal;
        if (isBytes(value)) return Buffer.from(value.hex === owner.hash ? self.hash : value.hex, "hex");
        return typeof value === "string" ? (ids.get(value) ?? value) : value;
      });
      // What opens a transaction has its values in its text; of those the tenant alone is somebody's.
      await (name === null
        ? client.query(text.replaceAll(`'${owner.tenant}'`, `'${self.tenant}'`))
        : client.query({ name, text, values: own }));
    }
    delays.push(performance.now() - started);
  }
  await client.end();
}

await Promise.all(Array.from({ length: clients }, (_, n) => load(n)));
delays.sort((a, b) => a - b);
const at = (share: number) => delays[Math.floor(share * (delays.length - 1))] ?? Number.NaN;
process.stdout.write(JSON.stringify({ perSecond: delays.length / seconds, p50: at(0.5), p99: at(0.99) }));
