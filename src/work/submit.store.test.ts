import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "pg";
import { workStand } from "../../test/support/work.ts";
import { bench, failed } from "../../test/support/work-hands.ts";
import { isHoldfastError } from "../core/errors.ts";
import { uuidv7 } from "../core/ids.ts";
import { instant, seconds } from "../core/time.ts";
import { type ErrorCode } from "../wire/errors.ts";
import { defineWork } from "./define.ts";
import { openWork, submit, submitAll } from "./open.ts";
import { lastInstant } from "./plan.ts";
import { deadlineOnly, legacy, planned } from "./policy.ts";
import { listVersions, registerVersion, retireVersion } from "./version.store.ts";
import { suspendWork } from "./work.store.ts";
import { createWorker } from "./worker.ts";

const refused = (code: ErrorCode) => (error: unknown) => isHoldfastError(error, code);
const note = defineWork<unknown, null>({
  name: "note",
  version: "1",
  safety: "idempotent",
  policy: legacy(),
  run: () => null,
});

test("W9: command id and key are each unique in a tenant, and an identical duplicate resolves to its row", async (t) => {
  const { work } = await workStand(t);
  await work.register(note);
  const [a, b] = [uuidv7(), uuidv7()];
  const ask = (input: unknown, identity: { id?: string; key?: string }) =>
    submit(work, note, input, identity);
  await ask("one", { id: a, key: "ka" });
  await ask("two", { id: b, key: "kb" });
  const cases: readonly (readonly [input: string, { id?: string; key?: string }, expected: string])[] = [
    ["one", { id: a, key: "ka" }, a],
    ["one", { id: a }, a],
    ["one", { key: "ka" }, a],
    ["one", { id: a, key: "new" }, a],
    ["one", { id: uuidv7(), key: "ka" }, a],
    ["two", { id: a, key: "ka" }, "conflict"],
    ["two", { key: "ka" }, "conflict"],
    ["one", { id: a, key: "kb" }, "conflict"],
    ["two", { id: a, key: "kb" }, "conflict"],
  ];
  for (const [input, identity, expected] of cases) {
    const answer = ask(input, identity);
    if (expected === "conflict")
      await assert.rejects(answer, refused("idempotency_conflict"), JSON.stringify([input, identity]));
    else assert.deepEqual([(await answer).id, (await answer).duplicate], [expected, true]);
  }
  const other = await submit(work, note, "other", { id: a, key: "ka", tenant: "other" });
  assert.deepEqual([other.id, other.duplicate], [a, false], "another tenant's identities are its own");
});

test("W9: in one call, and of many calls at once, one identity is one item", async (t) => {
  const { work, ask } = await workStand(t);
  await work.register(note);
  const twice = await submitAll(work, note, [{ input: 1, key: "k" }, { input: 1, key: "k" }, { input: 2 }]);
  assert.deepEqual(
    twice.map(({ duplicate }) => duplicate),
    [false, true, false],
  );
  const many = await Promise.all(Array.from({ length: 8 }, () => submit(work, note, 3, { key: "race" })));
  assert.equal(new Set(many.map(({ id }) => id)).size, 1);
  assert.equal(many.filter(({ duplicate }) => !duplicate).length, 1);
  assert.deepEqual(await ask("select count(*)::int as n from holdfast.leases_work"), [{ n: 3 }]);
  await assert.rejects(
    submitAll(work, note, [{ input: 4 }, { input: 5, key: "k" }]),
    refused("idempotency_conflict"),
  );
  assert.deepEqual(
    await ask("select count(*)::int as n from holdfast.work_items"),
    [{ n: 3 }],
    "all of a call or nothing",
  );
});

test("W9: changed timing facts conflict, and a duplicate resolves after the deadline, too", async (t) => {
  const { give, clock, hands, work1, work } = await bench(t, { policy: deadlineOnly({ attempts: 1 }) });
  const deadline = instant(clock.now() + seconds(60));
  const id = await give({ key: "k", deadline });
  await assert.rejects(give({ key: "k", deadline: instant(deadline + 1n) }), refused("idempotency_conflict"));
  const worker = hands();
  await worker.done(await worker.permit(), failed);
  await clock.advance(seconds(1000));
  const again = await submit(work, work1, {}, { key: "k", deadline });
  assert.deepEqual([again.id, again.duplicate], [id, true]);
  await assert.rejects(give({ deadline }), refused("deadline_elapsed"));
});

test("W2: a version never changes, is retired for new submissions, and drains", async (t) => {
  const { work, tenant } = await workStand(t);
  const number = await registerVersion(work.db, note);
  assert.equal(await registerVersion(work.db, note), number);
  const changed = defineWork({
    name: "note",
    version: "1",
    safety: "idempotent",
    policy: legacy({ attempts: 3 }),
    run: () => null,
  });
  await assert.rejects(registerVersion(work.db, changed), refused("conflict"));
  const kept = await submit(work, note, 1, { key: "k" });
  await retireVersion(work.db, "note", "1");
  await assert.rejects(submit(work, note, 2), refused("work_retired"));
  assert.equal((await submit(work, note, 1, { key: "k" })).id, kept.id, "a duplicate still resolves");
  const unknown = defineWork<unknown, null>({
    name: "unknown",
    version: "1",
    safety: "idempotent",
    policy: legacy(),
    run: () => null,
  });
  await assert.rejects(submit(work, unknown, null), refused("work_not_registered"));
  const [shown] = await listVersions(work.db, tenant);
  assert.deepEqual(
    [shown?.runners, shown?.waiting, shown?.retired_at !== null],
    [0n, true, true],
    "nobody runs what waits: it is shown",
  );
  await suspendWork(work.db, { tenant, work: kept.id, by: "ada" });
  const [taken] = await listVersions(work.db, tenant);
  assert.deepEqual(
    [taken?.waiting, taken?.suspended],
    [false, true],
    "what is suspended waits for no worker",
  );
});

test("W13: what is submitted in a caller's transaction commits or vanishes with it", async (t) => {
  const { work, ask, database } = await workStand(t);
  await work.register(note);
  await ask("create table public.orders (id int)");
  await ask("create role shop login password 'x'").catch(() => undefined);
  await ask("grant holdfast_producer to shop with inherit true");
  await ask("grant all on public.orders to shop");
  const client = new Client({ ...database.superuser, user: "shop", password: "x" });
  await client.connect();
  try {
    for (const end of ["rollback", "commit"]) {
      await client.query("begin");
      await client.query("insert into public.orders values (1)");
      const { acceptedAt } = await submit(client, note, { end }, { tenant: "acme" });
      assert.ok(acceptedAt > 0n);
      assert.equal(
        (await client.query("select current_setting('holdfast.tenant', true) as t")).rows[0].t,
        "",
      );
      await client.query(end);
    }
  } finally {
    await client.end();
  }
  assert.deepEqual(await ask("select input from holdfast.work_items"), [{ input: { end: "commit" } }]);
  assert.deepEqual(await ask("select count(*)::int as n from public.orders"), [{ n: 1 }]);
});

test("W10: what a policy does not have is refused before anything is sent", async (t) => {
  const { work } = await workStand(t);
  const plan = planned({ version: "p", offsets: [seconds(0)], circuit: seconds(1) });
  const due = defineWork({
    name: "due",
    version: "1",
    safety: "idempotent",
    policy: deadlineOnly(),
    run: () => null,
  });
  const fixed = defineWork({
    name: "fixed",
    version: "1",
    safety: "idempotent",
    policy: plan,
    run: () => null,
  });
  const invalid = refused("invalid_request");
  await assert.rejects(submit(work, note, 1, { deadline: instant(1n) }), invalid);
  await assert.rejects(submit(work, due, 1), invalid);
  await assert.rejects(submit(work, fixed, 1, { delay: seconds(1) }), invalid);
  await assert.rejects(submit(work, note, 1, { delay: seconds(-1) }), invalid);
  await assert.rejects(submit(work, note, 1, { id: "x" }), invalid);
});

const says =
  (words: RegExp, code: ErrorCode = "invalid_request") =>
  (error: unknown) => {
    assert.ok(isHoldfastError(error, code), String(error));
    assert.match(error.detail, words);
    return true;
  };

test("W2: who submits by a definition of another policy than the registered one is told what that one wants", async (t) => {
  const { work, ask } = await workStand(t);
  const of = (name: string, policy: typeof note.policy) =>
    defineWork<unknown, null>({ name, version: "1", safety: "idempotent", policy, run: () => null });
  await work.register(of("free", legacy()), of("bound", deadlineOnly()));
  await assert.rejects(
    submit(work, of("free", deadlineOnly()), 1, { deadline: lastInstant }),
    says(/^this version of the work is registered without a deadline, and takes none$/),
  );
  await assert.rejects(
    submit(work, of("bound", legacy()), 1),
    says(/^this version of the work is registered with a deadline: each submission has to name one$/),
  );
  assert.deepEqual(await ask("select from holdfast.work_items"), []);
});

test("W9: an input that can't be kept as it is is refused with a code and its place, and nothing of the call is stored", async (t) => {
  const { work, ask } = await workStand(t);
  await work.register(note);
  const client = work.db.pools.of("producer");
  for (const [input, words] of [
    [{ items: [1, 2, 3, { amount: 5n }] }, /^input\.items\[3\]\.amount is a bigint/],
    [{ prices: new Map() }, /^input\.prices is a Map/],
    [undefined, /^input is undefined/],
    [{ big: 2 ** 60 }, /^input\.big is beyond 2\^53/],
    [{ text: "\0" }, /^input\.text has the character NUL/],
    [{ text: "x".repeat(5_000_000) }, /^input is larger than the 256 KiB/],
    // As the database stores it, a small number takes more than its text.
    [Array.from({ length: 60_000 }, () => 1), /^input is larger than the 256 KiB/],
  ] as const) {
    await assert.rejects(submit(work, note, input), says(words));
    await assert.rejects(submit(client, note, input, { tenant: "acme" }), says(words));
    for (const more of [2, 600]) {
      const items = Array.from({ length: more }, (_, n) => ({ input: n === 1 ? input : n }));
      const inItem = new RegExp(words.source.replace("^", "^items\\[1\\]\\."));
      await assert.rejects(submitAll(work, note, items), says(inItem));
    }
  }
  assert.deepEqual(await ask("select count(*)::int as n from holdfast.work_items"), [{ n: 0 }]);
  const when = new Date(0);
  await submit(work, note, { when, left: undefined }, { key: "k" });
  assert.deepEqual(await ask("select input from holdfast.work_items"), [{ input: { when: when.toJSON() } }]);
  const again = await submit(work, note, { when: when.toJSON() }, { key: "k" });
  assert.equal(again.duplicate, true, "what is stored makes the request");
});

test("W9: an input is checked as its handler will get it, and what does not fit is named by its place", async (t) => {
  const { work } = await workStand(t);
  const issues = (value: unknown) =>
    typeof value === "object" && value !== null && "at" in value && typeof value.at === "string"
      ? undefined
      : [{ message: "must be a text", path: ["at", { key: 0 }] }];
  const strict = defineWork<unknown, null>({
    name: "strict",
    version: "1",
    safety: "idempotent",
    policy: legacy(),
    input: {
      "~standard": {
        version: 1,
        vendor: "test",
        validate(value) {
          const found = issues(value);
          return found === undefined ? { value } : { issues: found };
        },
      },
    },
    run: () => null,
  });
  await work.register(strict);
  await submit(work, strict, { at: new Date(0) });
  await assert.rejects(submit(work, strict, { at: 5 }), says(/^input\.at\[0\]: must be a text$/));
  await assert.rejects(
    submitAll(work, strict, [{ input: { at: "x" } }, { input: {} }]),
    says(/^items\[1\]\.input\.at\[0\]: must be a text$/),
  );
});

test("W9: a member that means nothing is refused and the one that was meant is named: a lost key loses idempotency", async (t) => {
  const { work, ask } = await workStand(t);
  await work.register(note);
  // As from a program without types, or through a variable.
  const loose = (options: object) => submit(work, note, 1, options);
  for (const [options, words] of [
    [{ idempotencykey: "k" }, /^idempotencykey means nothing here; did you mean `key`\?$/],
    [{ idempotency_key: "k" }, /did you mean `key`\?$/],
    [{ Key: "k" }, /^Key means nothing here; did you mean `key`\?$/],
    [{ provider_key: "k" }, /did you mean `providerKey`\?$/],
    [{ priorty: 1 }, /did you mean `priority`\?$/],
    [{ input: 2 }, /^input means nothing here; known are id, key, /],
    [{ retries: 2 }, /^retries means nothing here; known are id, key, .*circuitKey, tenant$/],
  ] as const) {
    await assert.rejects(loose(options), says(words));
  }
  const all = (items: readonly object[], options: object = {}) =>
    submitAll(work, note, items as { input: number }[], options);
  await assert.rejects(
    all([{ input: 1 }, { input: 1, idempotencyKey: "k" }]),
    says(/^items\[1\]\.idempotencyKey means/),
  );
  await assert.rejects(all([{ input: 1, tenant: "other" }]), says(/^items\[0\]\.tenant means nothing here/));
  await assert.rejects(
    all([{ input: 1 }], { tennant: "other" }),
    says(/^tennant .*did you mean `tenant`\?$/),
  );
  await assert.rejects(
    all([{ cents: 1 }]),
    says(/^items\[0\]\.cents means nothing here; known are input, id/),
  );
  await assert.rejects(all([null as unknown as object]), says(/^items\[0\] is no item/));
  for (const [options, words] of [
    [{ key: "with a space" }, /^key is not 1 to 255 visible ASCII characters$/],
    [{ key: 5 }, /^key is not/],
    [{ queue: "No" }, /^queue is not/],
    [{ priority: 1.5 }, /^priority is none of/],
    [{ providerKey: "" }, /^providerKey is not/],
    [{ circuitKey: "\0" }, /^circuitKey is not/],
    [{ delay: 5 }, /^delay is no bigint of microseconds: use seconds\(\)$/],
  ] as const) {
    await assert.rejects(loose(options), says(words));
  }
  assert.throws(
    () => defineWork({ ...note, retries: 2 } as never),
    says(/^(digest|retries) means nothing here/),
  );
  assert.throws(() => legacy({ atempts: 2 } as never), says(/did you mean `attempts`\?$/));
  assert.throws(
    () => planned({ version: "p", offsets: [seconds(0)], circuit: seconds(1) }, { attempts: 2 } as never),
    says(/^attempts means nothing here; known are elapsed, lease$/),
  );
  await assert.rejects(all(1 as never), says(/^items is no array of \{ input, … \}$/));
  await assert.rejects(all({ input: 1 } as never), says(/^items is no array/));
  await assert.rejects(
    openWork({ database: "", tennant: "acme" } as never),
    says(/did you mean `tenant`\?$/),
  );
  await assert.rejects(
    createWorker(work, { works: [note], concurency: 2 } as never),
    says(/did you mean `concurrency`\?$/),
  );
  assert.deepEqual(await ask("select count(*)::int as n from holdfast.work_items"), [{ n: 0 }]);
  // Null is nothing, as where it comes from a column that has none.
  await loose({ key: null, id: null, deadline: null, delay: null, queue: null, priority: null });
});
