import assert from "node:assert/strict";
import { test } from "node:test";
import { bench, failed, succeeded } from "../../test/support/work-hands.ts";
import { isHoldfastError } from "../core/errors.ts";
import { uuidv7 } from "../core/ids.ts";
import { instant, seconds } from "../core/time.ts";
import { submit, submitAll } from "./open.ts";
import { deadlineOnly, legacy } from "./policy.ts";
import { retireVersion } from "./version.store.ts";

/** What was accepted: two with both identities, one with its command id alone. */
const stored = [
  { name: "a", key: "ka", content: 1 },
  { name: "b", key: "kb", content: 2 },
  { name: "c", key: undefined, content: 3 },
] as const;
const ids = ["a", "b", "c", "new", undefined] as const;
const keys = ["ka", "kb", "new", undefined] as const;

/** What W9 says of a request, without looking at any row. */
function expected(id: (typeof ids)[number], key: (typeof keys)[number], content: number): string {
  const byId = stored.find(({ name }) => name === id);
  const byKey = stored.find((row) => key !== undefined && row.key === key);
  if (byId !== undefined && byKey !== undefined && byId !== byKey) return "conflict";
  const row = byId ?? byKey;
  if (row === undefined) return "accepted";
  return row.content === content ? row.name : "conflict";
}

for (const life of ["waiting", "finished", "expired", "of a retired version"] as const) {
  test(`W9: the whole matrix of command id, key and content, with items that are ${life}`, async (t) => {
    const one = await bench(t, { policy: deadlineOnly({ attempts: 1 }) });
    const { work, work1, clock, hands, ask } = one;
    const deadline = instant(clock.now() + seconds(60));
    const own = { a: uuidv7(), b: uuidv7(), c: uuidv7() };
    for (const { name, key, content } of stored) {
      const identity = { id: own[name], ...(key === undefined ? {} : { key }) };
      await submit(work, work1, { content }, { ...identity, deadline });
    }
    if (life === "finished") {
      const worker = hands();
      for (const outcome of [succeeded(), failed, succeeded()])
        await worker.done(await worker.permit(), outcome);
      assert.deepEqual(await ask("select from holdfast.leases_work"), []);
    } else if (life === "expired") await clock.advance(seconds(1_000));
    else if (life === "of a retired version") await retireVersion(work.db, "charge", "1");
    const fresh =
      life === "expired" ? "deadline_elapsed" : life === "of a retired version" ? "work_retired" : null;
    let cases = 0;
    for (const id of ids) {
      for (const key of keys) {
        for (const content of [1, 2, 3]) {
          const told = `${id} ${key} ${content}`;
          const identity = {
            ...(id === undefined ? {} : { id: id === "new" ? uuidv7() : own[id] }),
            ...(key === undefined ? {} : { key: key === "new" ? uuidv7() : key }),
          };
          const answer = submit(work, work1, { content }, { ...identity, deadline });
          const wanted = expected(id, key, content);
          const code = wanted === "conflict" ? "idempotency_conflict" : wanted === "accepted" ? fresh : null;
          cases += 1;
          if (code !== null) await assert.rejects(answer, (error) => isHoldfastError(error, code), told);
          else {
            const { id: found, duplicate } = await answer;
            assert.equal(duplicate, wanted !== "accepted", told);
            if (wanted !== "accepted") assert.equal(found, own[wanted as keyof typeof own], told);
          }
        }
      }
    }
    assert.equal(cases, 60);
    // The same content with another timing fact is another request, under either identity.
    const later = { deadline: instant(deadline + 1n) };
    for (const identity of [{ id: own.a }, { key: "ka" }]) {
      const [which] = Object.keys(identity);
      await assert.rejects(
        submit(work, work1, { content: 1 }, { ...identity, ...later }),
        (error) =>
          isHoldfastError(error, "idempotency_conflict") &&
          error.message.includes(`its ${which} belongs to another request, that of work ${own.a}`),
      );
    }
  });
}

test("W9: answers come in the order of the items, new ones and duplicates, also beyond ten and in several calls", async (t) => {
  const { work, work1 } = await bench(t, { policy: legacy() });
  const items = Array.from({ length: 1_203 }, (_, n) => ({ input: { n }, id: uuidv7(), key: `k${n}` }));
  const first = await submitAll(work, work1, items.slice(0, 37));
  assert.deepEqual(
    first.map(({ id }) => id),
    items.slice(0, 37).map(({ id }) => id),
  );
  const all = await submitAll(work, work1, items);
  assert.deepEqual(
    all.map(({ id, duplicate }) => [id, duplicate]),
    items.map(({ id }, n) => [id, n < 37]),
  );
});

test("W9: an input that is null is an input, and what can't be kept is refused with a code", async (t) => {
  const { work, work1, hands, ask } = await bench(t, { policy: legacy() });
  const { id } = await submit(work, work1, null, { key: "null" });
  assert.equal((await submit(work, work1, null, { key: "null" })).id, id);
  assert.deepEqual(await ask("select input from holdfast.work_items"), [{ input: null }]);
  assert.equal((await hands().permit()).input, null);
  const invalid = (error: unknown) => isHoldfastError(error, "invalid_request");
  await assert.rejects(submit(work, work1, "\u0000"), invalid);
  await assert.rejects(submit(work, work1, 1, { key: "with a space" }), invalid);
  await assert.rejects(submit(work, work1, 1, { circuitKey: "x".repeat(129) }), invalid);
  await assert.rejects(submit(work, work1, 1, { queue: "No" }), invalid);
  await assert.rejects(submit(work, work1, 1, { priority: 4 as 3 }), invalid);
  await assert.rejects(submit(work, work1, 1, { delay: seconds(101 * 365.25 * 86_400) }), invalid);
});
