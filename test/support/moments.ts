import type { Pool, PoolClient } from "pg";
import type { BlobStore } from "../../src/core/blob.port.ts";
import type { Egress } from "../../src/core/egress/egress.ts";
import { assertOutsideTransition } from "../../src/core/outside.ts";
import type { Database } from "../../src/core/postgres/transition.ts";
import { type Runtime, RuntimeRefusal } from "../../src/core/runtime.port.ts";

/**
 * The moments of a controller, named: around every call of the outside (`call runtime.prepare`,
 * `returned runtime.prepare`) and around every transition (`begin finishExecution`, before it has a
 * connection; `commit finishExecution`, when only the commit is missing; `committed finishExecution`).
 * A test kills or suspends a process at one of them; the code under test knows nothing of it.
 */
export interface Moments {
  /** `whose` names the tenant, as far as it is known. Gives whether it was held up here. */
  readonly reach: (moment: string, whose: string) => Promise<boolean>;
  /** The database or the outside refused what an older epoch asked for. */
  readonly refused: (what: string, why: string) => void;
}

export function observedDatabase(db: Database, moments: Moments): Database {
  const { pools } = db;
  const observed = new Map<Pool, Pool>();
  return {
    ...db,
    pools: {
      settings: pools.settings,
      close: () => pools.close(),
      of(role) {
        const pool = pools.of(role);
        const known = observed.get(pool) ?? observedPool(pool, moments);
        observed.set(pool, known);
        return known;
      },
    },
  };
}

function observedPool(pool: Pool, moments: Moments): Pool {
  return over(pool, {
    async connect() {
      const name = transitionName();
      await moments.reach(`begin ${name}`, "");
      return observedClient(await pool.connect(), name, moments);
    },
  });
}

function observedClient(client: PoolClient, name: string, moments: Moments): PoolClient {
  let writes = true;
  let tenant = "";
  return over(client, {
    async query(...words: Parameters<PoolClient["query"]>) {
      const [asked] = words as readonly unknown[];
      tenant = tenantNamedIn(asked) ?? tenant;
      if (typeof asked === "string" && asked.startsWith("begin")) writes = !asked.includes("read only");
      const commits = asked === "commit" && writes;
      if (commits) await moments.reach(`commit ${name}`, tenant);
      try {
        const answer: unknown = client.query(...words);
        return await answer;
      } catch (error) {
        if (codeOf(error) === "HF001") moments.refused(name, "fenced");
        throw error;
      } finally {
        if (commits) await moments.reach(`committed ${name}`, tenant);
      }
    },
  });
}

export const observedRuntime = (runtime: Runtime, moments: Moments): Runtime =>
  observedPort("runtime", runtime, moments);

/** The directory store serves its own capabilities beside the port; that part passes through. */
export const observedBlobs = <T extends BlobStore>(blobs: T, moments: Moments): T =>
  observedPort("blobs", blobs, moments);

/** Whose a call is stands in its URL. */
export const observedEgress =
  (egress: Egress, moments?: Moments): Egress =>
  async (request) => {
    await moments?.reach("call egress", request.url);
    const answer = await egress(request);
    await moments?.reach("returned egress", request.url);
    return answer;
  };

function observedPort<T extends object>(port: string, target: T, moments: Moments): T {
  const tenants = new Map<string, string>();
  /** A blob's key names its tenant; a sandbox's name is known from when it was prepared. */
  const ownerOf = (about: unknown): string => {
    if (typeof about === "string") return about;
    if (typeof about !== "object" || about === null || !("name" in about)) return "";
    if ("tenant" in about) tenants.set(String(about.name), String(about.tenant));
    return tenants.get(String(about.name)) ?? "";
  };
  return new Proxy(target, {
    get(_, key) {
      const member: unknown = Reflect.get(target, key);
      if (typeof member !== "function") return member;
      const name = `${port}.${String(key)}`;
      const call = (args: readonly unknown[]): unknown => Reflect.apply(member, target, args);
      if (key === "handle") return (...args: unknown[]) => call(args);
      if (key === "logs" || key === "list") {
        return async function* (...args: unknown[]) {
          const whose = ownerOf(args[0]);
          await moments.reach(`call ${name}`, whose);
          yield* call(args) as AsyncIterable<unknown>;
          await moments.reach(`returned ${name}`, whose);
        };
      }
      return async (...args: unknown[]) => {
        const whose = ownerOf(args[0]);
        const held = await moments.reach(`call ${name}`, whose);
        try {
          // Who was held up does not hear that its lease is lost: the outside itself has to refuse it.
          return await call(held ? args.map(deaf) : args);
        } catch (error) {
          if (error instanceof RuntimeRefusal) moments.refused(name, error.reason);
          throw error;
        } finally {
          await moments.reach(`returned ${name}`, whose);
        }
      };
    },
  });
}

const deaf = (argument: unknown): unknown =>
  argument instanceof AbortSignal ? new AbortController().signal : argument;

/** The tenant of a transaction stands in its first exchange. */
function tenantNamedIn(asked: unknown): string | undefined {
  return typeof asked === "string" ? /begin_transition\('([^']*)'/.exec(asked)?.[1] : undefined;
}

/** The open transition's name. Only the guard of the adapters (S10) knows it, and says it when it refuses. */
function transitionName(): string {
  try {
    assertOutsideTransition("a test");
    return "none";
  } catch (error) {
    return /transition "(.+)" was open/.exec(String(error))?.[1] ?? "unknown";
  }
}

const codeOf = (error: unknown): unknown =>
  error instanceof Error && "code" in error ? error.code : undefined;

/** The target with some members replaced; all others run on the target itself. */
function over<T extends object>(target: T, members: Partial<Record<keyof T, unknown>>): T {
  return new Proxy(target, {
    get(_, key) {
      if (Object.hasOwn(members, key)) return members[key as keyof T];
      const member: unknown = Reflect.get(target, key);
      return typeof member === "function" ? member.bind(target) : member;
    },
  });
}
