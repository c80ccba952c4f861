import assert from "node:assert/strict";
import { brandId, type IncarnationId, uuidv7 } from "../../src/core/ids.ts";
import { type Instant, instant, seconds } from "../../src/core/time.ts";
import { type Clock, controlClock } from "../../src/dev/testing.ts";
import type { WorkReceipt, WorkView } from "../../src/wire/work.ts";
import { defineWork, type WorkDefinition } from "../../src/work/define.ts";
import { planned } from "../../src/work/policy.ts";
import {
  claimWork,
  type Outcome,
  observeWork,
  type Permitted,
  recoverWork,
  turnWork,
} from "../../src/work/turn.store.ts";
import { registerVersion } from "../../src/work/version.store.ts";
import { type Bench, type CallRequest, openBench, type Reply } from "./gateway.ts";

/** A gateway, one version of planned work, and a worker whose every step is the test's own. */
export interface WorkApi {
  readonly bench: Bench;
  readonly clock: Clock;
  readonly charge: WorkDefinition;
  readonly number: number;
  readonly submit: (more?: object, request?: CallRequest) => Promise<string>;
  readonly get: (id: string) => Promise<Reply>;
  readonly ask: (id: string, verb: string, request?: CallRequest) => Promise<Reply>;
  readonly view: (id: string, verb: string, request?: CallRequest) => Promise<WorkView>;
  /** Claims and permits the one item that is due. */
  readonly permit: () => Promise<Permitted & { readonly by: IncarnationId }>;
  readonly done: (item: Permitted & { readonly by: IncarnationId }, outcome: Outcome) => Promise<void>;
  /** Its lease passes and it is recovered. Gives what it came to. */
  readonly lose: () => Promise<string>;
}

const leaseUs = seconds(30);
/** Tokens are good for an hour from now by the same clock. */
const start = (): Instant => instant(BigInt(Date.now()) * 1_000n);

export async function openWorkApi(
  scope: Parameters<typeof openBench>[0],
  options: Parameters<typeof openBench>[1] = {},
): Promise<WorkApi> {
  const bench = await openBench(scope, options);
  const { db, ask } = bench.kernel;
  const clock = await controlClock((text) => ask(text), start());
  const charge = defineWork({
    name: "charge",
    version: "1",
    safety: "manual_resolution",
    policy: planned({ version: "a", offsets: [0, 60, 120].map(seconds), circuit: seconds(300) }),
    run: () => null,
  }) as WorkDefinition;
  const number = await registerVersion(db, charge);
  const claim = async (by: IncarnationId) =>
    claimWork(db, { holder: by, lanes: [`${number}.default`], limit: 10, leaseUs });
  const act = (id: string, verb: string, request: CallRequest = {}) =>
    bench.call(bench.a, "POST", `/v1/work/${id}:${verb}`, request);
  return {
    bench,
    clock,
    charge,
    number,
    async submit(more = {}, request = {}) {
      const body = { name: "charge", version: "1", input: { cents: 500 }, ...more };
      const reply = await bench.call(bench.a, "POST", "/v1/work", { body, ...request });
      assert.ok(reply.status < 300, reply.text);
      return reply.json<WorkReceipt>().id;
    },
    get: (id) => bench.call(bench.a, "GET", `/v1/work/${id}`),
    ask: act,
    async view(id, verb, request) {
      const reply = await act(id, verb, request);
      assert.equal(reply.status, 202, reply.text);
      return reply.json<WorkView>();
    },
    async permit() {
      const by = brandId<IncarnationId>(uuidv7());
      const { claimed } = await claim(by);
      assert.equal(claimed.length, 1, "one is due");
      const { permitted, passed } = await turnWork(db, by, [], claimed);
      const [one] = permitted;
      assert.ok(one, `passed: ${passed.map(({ what }) => what).join()}`);
      return { ...one, by };
    },
    async done(item, outcome) {
      const { unmatched } = await turnWork(db, item.by, [{ item, outcome }], []);
      for (const one of unmatched) await observeWork(db, item.by, one, "a-year");
    },
    async lose() {
      await clock.advance(leaseUs);
      const { lost } = await claim(brandId<IncarnationId>(uuidv7()));
      assert.equal(lost.length, 1, "one was lost");
      return (await recoverWork(db, lost)).join();
    },
  };
}
