import { canonicalDigest } from "./canonical.ts";
import type { Role } from "./postgres/pool.ts";
import type { Statement } from "./postgres/statement.ts";
import type { Transaction } from "./postgres/transition.ts";

/** One thing that is wrong: with which resource, and what. */
export interface Violation {
  readonly resource: string;
  readonly problem: string;
}

/**
 * Something that is always true of a store, whatever raced or crashed. `find` gives what breaks it, at most
 * `limit` of it, and nothing when all is well. It only reads.
 */
export interface Invariant {
  /** Its statement's name, by which reports name it. */
  readonly name: string;
  /** The promises that it carries. */
  readonly promises: readonly string[];
  /** Of each tenant on its own, or of the installation as a whole. */
  readonly of: "tenant" | "installation";
  /** The role that sees what it looks at. */
  readonly role: Role;
  /** What an operator does about it. */
  readonly next: string;
  readonly find: (tx: Transaction, limit: number) => Promise<readonly Violation[]>;
}

type InvariantStatement = Statement<{ readonly limit: bigint }, Violation, "many">;

/** One that a single statement decides. */
export function invariant(
  statement: InvariantStatement,
  facts: Pick<Invariant, "promises" | "next"> & Partial<Pick<Invariant, "of" | "role">>,
): Invariant {
  const { of = "tenant", role = "operator", ...rest } = facts;
  const [, name = statement.name] = statement.name.split(".");
  return { name, of, role, ...rest, find: (tx, limit) => tx.run(statement, { limit: BigInt(limit) }) };
}

export interface Digested {
  readonly key: string;
  readonly resource: string;
  readonly value: unknown;
  readonly digest: string;
}

const pageOfDigests = 500n;

/** That digests are those of what they stand beside. SQL can't compute canonical JSON: rows come in pages, by key. */
export function digestsOf(
  facts: Pick<Invariant, "name" | "promises" | "next">,
  read: (tx: Transaction, after: string | null, page: bigint) => Promise<readonly Digested[]>,
): Invariant {
  const find = async (tx: Transaction, limit: number): Promise<Violation[]> => {
    const found: Violation[] = [];
    for (let after: string | null = null; found.length < limit; ) {
      const rows: readonly Digested[] = await read(tx, after, pageOfDigests);
      for (const { resource, value, digest } of rows) {
        const real = canonicalDigest(value);
        if (real !== digest) found.push({ resource, problem: `its digest is ${real}, not ${digest}` });
      }
      const last = rows.at(-1);
      if (last === undefined || rows.length < pageOfDigests) break;
      after = last.key;
    }
    return found.slice(0, limit);
  };
  return { ...facts, of: "tenant", role: "operator", find };
}
