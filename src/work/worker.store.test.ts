import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "../../test/support/until.ts";
import { workStand } from "../../test/support/work.ts";
import { defineWork } from "./define.ts";
import { submit, submitAll } from "./open.ts";
import { legacy } from "./policy.ts";

test("W5: what is submitted runs once, and its history says under which permit", async (t) => {
  const { worker, work, ask, errors } = await workStand(t);
  const ran: string[] = [];
  const greet = defineWork({
    name: "greet",
    version: "1",
    safety: "idempotent",
    policy: legacy(),
    run: (input: { readonly name: string }, { id }) => {
      ran.push(id);
      return { said: `hello ${input.name}` };
    },
  });
  await work.register(greet);
  const { id } = await submit(work, greet, { name: "you" });
  const many = await submitAll(
    work,
    greet,
    Array.from({ length: 1200 }, (_, n) => ({ input: { name: `n${n}` } })),
  );
  await worker({ works: [greet], concurrency: 20 });
  await until("all of it has run", async () => (await ask("select from holdfast.leases_work")).length === 0);
  assert.deepEqual(new Set(ran), new Set([id, ...many.map((one) => one.id)]));
  assert.equal(ran.length, 1201);
  const [row] = await ask(
    "select state, attempts, result, holder is not null as held, permit_admitted_at is not null as admitted from holdfast.work_history where work_id = $1",
    [id],
  );
  assert.deepEqual(row, {
    state: "succeeded",
    attempts: 1,
    result: { said: "hello you" },
    held: true,
    admitted: true,
  });
  assert.deepEqual(errors, []);
});
