import assert from "node:assert/strict";
import { test } from "node:test";
import { grantPermission } from "../../src/sessions/session.store.ts";
import { sessionsOf } from "../support/sessions.ts";
import { testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

test("S7 S11 S13 G9: two turns: the second remembers exactly what the first committed, and nothing is left outside", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation);
  const sessions = sessionsOf(foundation.db, stack.tenant);
  await sessions.agent("notes");
  const session = await sessions.create("notes");
  const first = await sessions.tell(session, { text: "one" });
  const second = await sessions.tell(session, { text: "two" });
  assert.deepEqual((await sessions.reaches(session, first)).reply, { said: ["one"] });
  const ended = await sessions.reaches(session, second);
  assert.deepEqual([ended.state, ended.reply, ended.revision], ["committed", { said: ["one", "two"] }, 2n]);

  // An idle session holds nothing.
  await until("everything is cleaned and given up", async () => {
    const leases = await stack.rows(
      "select kind from holdfast.leases where kind in ('session', 'activation')",
    );
    return leases.length === 0;
  });
  const ran = await stack.rows<{ owner_kind: string; state: string }>(
    "select distinct owner_kind, state from holdfast.sandbox_attempts",
  );
  assert.deepEqual(ran, [{ owner_kind: "activation", state: "removed" }]);
  const left = await stack.rows("select name, state from holdfast.sandbox_attempts where state <> 'removed'");
  assert.deepEqual(left, []);
  const row = await sessions.session(session);
  assert.deepEqual(
    [row.observed_state, row.observed_generation, row.head_revision],
    ["idle", row.generation, 2n],
  );
  const inbox = await stack.rows<{ reply: unknown }>(
    "select payload -> 'reply' as reply from holdfast.publication_outbox order by ordinal",
  );
  assert.deepEqual(
    inbox.map(({ reply }) => reply),
    [{ said: ["one"] }, { said: ["one", "two"] }],
  );
});

test("an agent that needs a permission waits for it, holding nothing, and goes on from the same head", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation);
  const sessions = sessionsOf(foundation.db, stack.tenant);
  await sessions.agent("notes");
  const session = await sessions.create("notes");
  const turn = await sessions.tell(session, { text: "one", ask: "notes.write" });
  await sessions.reaches(session, turn, ["waiting"]);
  await until("it is observed, and nothing is held", async () => {
    const [leases, row] = await Promise.all([
      stack.rows("select kind from holdfast.leases where kind in ('session', 'activation')"),
      sessions.session(session),
    ]);
    return leases.length === 0 && row.observed_state === "waiting";
  });
  await sessions.change("grant", (tx) => grantPermission(tx, { session, permission: "notes.write" }));
  const ended = await sessions.reaches(session, turn);
  assert.deepEqual([ended.state, ended.reply, ended.tries], ["committed", { said: ["one"] }, 2]);
});
