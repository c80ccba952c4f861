import { brandId, type IncarnationId, type TenantId, uuidv7 } from "../../src/core/ids.ts";
import { look } from "../../src/core/lookout.sql.ts";
import type { Role } from "../../src/core/postgres/pool.ts";
import { runAlone } from "../../src/core/postgres/transition.ts";
import { seconds } from "../../src/core/time.ts";
import type { WorkDefinition } from "../../src/work/define.ts";
import { prepared, submitOn } from "../../src/work/submit.ts";
import { type Claimed, type Cursor, claimWork, type Done, turnWork } from "../../src/work/turn.store.ts";
import type { Hands } from "./undone.ts";

/** What the calls of the hot path need to know of a store. */
export interface HotStore {
  readonly work: WorkDefinition;
  readonly lane: string;
  /** In which nothing is due. */
  readonly idleLane: string;
  readonly tenants: readonly string[];
  readonly holder: IncarnationId;
  /** Claimed by the holder, in a lane of their own. */
  readonly held: readonly Claimed[];
}

/** One query of the hot path; its last statement is the one that is measured. */
export interface HotCall {
  readonly what: string;
  readonly role: Role;
  /** Times as long as at the small store, at most. */
  readonly budget?: number;
  readonly run: (hands: Hands, store: HotStore) => Promise<unknown>;
}

/** Items of one call. */
export const hotBatch = 100;
const leaseUs = seconds(30);

export const hotCalls: readonly HotCall[] = [
  {
    what: "claim",
    role: "dispatcher",
    budget: 1.2,
    run: async ({ db }, { lane, holder }) => {
      const { claimed } = await claimWork(db, { holder, lanes: [lane], limit: hotBatch, leaseUs });
      all(claimed);
    },
  },
  {
    what: "turn that takes",
    role: "worker",
    budget: 1.2,
    run: async (hands, store) =>
      all((await taking(hands, store, [], beginning(store, store.lane))).permitted),
  },
  {
    what: "claim of nothing",
    role: "dispatcher",
    budget: 1.2,
    run: async ({ db }, { idleLane, holder }) => {
      const { claimed } = await claimWork(db, { holder, lanes: [idleLane], limit: hotBatch, leaseUs });
      none(claimed);
    },
  },
  {
    what: "turn that takes nothing",
    role: "worker",
    budget: 1.2,
    run: async (hands, store) =>
      none((await taking(hands, store, [], beginning(store, store.idleLane))).permitted),
  },
  {
    what: "turn that settles and takes",
    role: "worker",
    run: async (hands, store) => {
      const { permitted, cursors } = await taking(hands, store, [], beginning(store, store.lane));
      const done = all(permitted).map(
        (item): Done => ({ item, outcome: { type: "succeeded", result: "1" } }),
      );
      all((await taking(hands, store, done, cursors)).permitted);
    },
  },
  {
    what: "turn that permits claims",
    role: "worker",
    run: async ({ db }, { holder, held }) => all((await turnWork(db, holder, [], held)).permitted),
  },
  {
    what: "turn in which all fail",
    role: "worker",
    run: async (hands, store) => {
      const { permitted } = await taking(hands, store, [], beginning(store, store.lane));
      const outcome = { type: "failed", code: "broken", message: "it broke", final: false } as const;
      const done = all(permitted).map((item): Done => ({ item, outcome }));
      all((await turnWork(hands.db, store.holder, done, [])).settled);
    },
  },
  { what: "submission of many", role: "producer", run: (hands, store) => submitting(hands, store, hotBatch) },
  { what: "submission of one", role: "producer", run: (hands, store) => submitting(hands, store, 1) },
  {
    what: "look of an idle process",
    role: "dispatcher",
    run: ({ db }) => runAlone(db, "dispatcher", look, { kinds: ["work"] }),
  },
];

/** Before the first item of each tenant. */
const beginning = ({ tenants }: HotStore, lane: string) =>
  tenants.map((tenant): Cursor => [lane, 2, tenant, "-infinity", "00000000-0000-0000-0000-000000000000"]);

const taking = ({ db }: Hands, { holder }: HotStore, done: readonly Done[], lines: readonly Cursor[]) =>
  turnWork(db, holder, done, [], { lines, limit: hotBatch, leaseUs });

async function submitting({ on, db }: Hands, { work, tenants }: HotStore, count: number) {
  const items = Array.from({ length: count }, (_, n) => ({ input: { n }, key: uuidv7() }));
  await submitOn(on, {
    tenant: brandId<TenantId>(tenants[0] ?? ""),
    deploymentEpoch: db.deploymentEpoch,
    name: work.name,
    version: work.version,
    items: await prepared(work, items),
    named: true,
  });
}

function none(items: readonly unknown[]): void {
  if (items.length > 0) throw new Error(`${items.length} items where nothing is due`);
}

/** What did less than it should was not measured. */
function all<Item>(items: readonly Item[]): readonly Item[] {
  if (items.length !== hotBatch) throw new Error(`${items.length} items instead of ${hotBatch}`);
  return items;
}
