import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import type { PrepareRequest, Runtime, SandboxRef } from "../../src/core/runtime.port.ts";
import { seconds } from "../../src/core/time.ts";
import { collect, digestOf, podRequest, type RuntimeUnderTest, refused, stopped, sweep } from "./runtime.ts";

const never = new AbortController().signal;
const minute = seconds(60);

/** What an API server alone decides: the fences of the protocol, with no node that ever takes a pod. */
export function withoutNodeConformance(name: string, makeRuntime: () => Promise<RuntimeUnderTest>): void {
  describe(`runtime without a node: ${name}`, () => {
    let world: RuntimeUnderTest;
    let runtime: Runtime;
    let other: Runtime;
    let serial = 0;

    before(async () => {
      world = await makeRuntime();
      ({ runtime, other } = world);
    });
    after(async () => {
      await sweep(runtime);
      await world.close();
    });

    const requestOf = (more: Partial<PrepareRequest> = {}): PrepareRequest => ({
      ...podRequest(`hf-nodeless-${(serial += 1)}`, world.installation, "exit 0"),
      epoch: 10n,
      ...more,
    });
    const prepare = async (request: PrepareRequest, by = runtime): Promise<SandboxRef> => ({
      name: request.name,
      uid: (await by.prepare(request, never)).uid,
    });
    const stateOf = async (ref: SandboxRef) => (await runtime.observe(ref, never)).state;
    const outcomeOf = async (ref: SandboxRef) => (await stopped(runtime, ref)).outcome.kind;

    test("E7: controllers that prepare one name at once make one object, and another digest is refused", async () => {
      const request = requestOf();
      const refs = await Promise.all([runtime, other, runtime, other].map((by) => prepare(request, by)));
      assert.equal(new Set(refs.map(({ uid }) => uid)).size, 1);
      const changed = { ...request, specDigest: digestOf("another") };
      await assert.rejects(other.prepare(changed, never), refused("name_taken"));
    });

    test("E6: after a fence every call of an older epoch is refused", async () => {
      const ref = await prepare(requestOf());
      await other.fence(ref, 11n, never);
      for (const late of [
        () => runtime.fence(ref, 10n, never),
        () => runtime.release(ref, 10n, minute, never),
        () => runtime.stop(ref, 10n, never),
      ]) {
        await assert.rejects(late(), refused("superseded"));
      }
      assert.deepEqual(await runtime.observe(ref, never), { state: "held", uid: ref.uid, epoch: 11n });
    });

    test("E6: release against fence: whichever is first decides, and the answer is true", async () => {
      for (let round = 0; round < 5; round += 1) {
        const ref = await prepare(requestOf());
        const [release] = await Promise.allSettled([
          runtime.release(ref, 10n, minute, never),
          other.fence(ref, 11n, never),
        ]);
        const held = (await stateOf(ref)) === "held";
        assert.equal(held, release?.status === "rejected");
        if (release?.status === "rejected") refused("superseded")(release.reason);
      }
    });

    test("E6: what was stopped while held never starts: the proof is that it can't be bound any more", async () => {
      const ref = await prepare(requestOf());
      await runtime.stop(ref, 10n, never);
      assert.equal(await outcomeOf(ref), "never_started");
      await assert.rejects(other.release(ref, 10n, minute, never), refused("stopping"));
    });

    test("E8: what was released and no node took is stopped, with that proof", async () => {
      const ref = await prepare(requestOf());
      await runtime.release(ref, 10n, minute, never);
      // Twice is the same.
      await other.release(ref, 10n, minute, never);
      assert.equal(await stateOf(ref), "running");
      await assert.rejects(runtime.remove(ref, never), refused("invalid"));
      await runtime.stop(ref, 10n, never);
      assert.equal(await outcomeOf(ref), "stopped");
    });

    test("E21: what nobody releases ends itself after its hold limit", async () => {
      const ref = await prepare(requestOf({ holdLimit: seconds(1) }));
      assert.equal(await outcomeOf(ref), "never_started");
    });

    test("E7: another UID is refused by every write, and a name that is free again is another object", async () => {
      const request = requestOf();
      const ref = await prepare(request);
      const wrong = { name: ref.name, uid: randomUUID() };
      await assert.rejects(runtime.fence(wrong, 11n, never), refused("wrong_uid"));
      await assert.rejects(runtime.release(wrong, 10n, minute, never), refused("wrong_uid"));
      await runtime.remove(wrong, never);
      assert.equal(await stateOf(ref), "held");
      await runtime.stop(ref, 10n, never);
      await stopped(runtime, ref);
      await runtime.remove(ref, never);
      assert.equal(await stateOf(ref), "absent");
      const again = await prepare(request);
      assert.notEqual(again.uid, ref.uid);
      await assert.rejects(other.release(ref, 10n, minute, never), refused("wrong_uid"));
    });

    test("E8: who waits for a change is woken by it", async () => {
      const ref = await prepare(requestOf());
      await runtime.observe(ref, never);
      const woken = runtime.changed(ref, AbortSignal.timeout(30_000));
      await other.fence(ref, 12n, never);
      await woken;
      assert.deepEqual(await runtime.observe(ref, never), { state: "held", uid: ref.uid, epoch: 12n });
    });

    test("E21: the list names every object of the installation with its owner and epoch", async () => {
      const request = requestOf();
      const ref = await prepare(request);
      const mine = (await collect(other.list(never))).find(({ uid }) => uid === ref.uid);
      assert.partialDeepStrictEqual(mine, {
        ...ref,
        tenant: "acme",
        sandbox: request.sandbox,
        epoch: 10n,
      });
    });
  });
}
