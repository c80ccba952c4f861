import assert from "node:assert/strict";
import { test } from "node:test";
import { cancelActivation } from "../../src/sessions/activation.store.ts";
import { createSession, deleteSession, grantPermission } from "../../src/sessions/session.store.ts";
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

test("G8 S13: a running turn is stopped and the next goes on; what a deleted session remembers goes when no copy has it", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation);
  const sessions = sessionsOf(foundation.db, stack.tenant);
  await sessions.agent("notes");
  const session = await sessions.create("notes");
  await sessions.reaches(session, await sessions.tell(session, { text: "one" }));
  const copy = await sessions.change("copy", async (tx) => {
    const from = { session, revision: 1n };
    return (await createSession(tx, { agent: "notes", from })).session_id;
  });

  const endless = await sessions.tell(session, { text: "two", until: "/nowhere" });
  const behind = await sessions.tell(session, { text: "three" });
  await until("it runs", async () => {
    const running = await stack.rows(
      "select from holdfast.sandbox_attempts s join holdfast.activations a on a.activation_uid = s.owner_id where s.state = 'released' and a.activation_id = $1",
      [endless],
    );
    return running.length === 1;
  });
  await sessions.change("cancel", (tx) =>
    cancelActivation(tx, { session, activation: endless, reason: "not needed" }),
  );
  assert.equal((await sessions.reaches(session, endless)).state, "cancelled");
  assert.deepEqual((await sessions.reaches(session, behind)).reply, { said: ["one", "three"] });

  const bundles = await stack.rows<{ revision: number; key: string }>(
    "select revision::int, blob_key as key from holdfast.bundle_revisions where session_id = $1 order by revision",
    [session],
  );
  const { signal } = new AbortController();
  const stored = () =>
    Promise.all(bundles.map(async ({ key }) => (await stack.blobs.size(key, signal)) !== null));
  const removed = (of: string) =>
    until("its bundles are gone", async () => {
      const left = await stack.rows(
        "select from holdfast.bundle_revisions where session_id = $1 and removed_at is null",
        [of],
      );
      return left.length === 0;
    });
  assert.deepEqual(await stored(), [true, true]);
  await sessions.change("delete", (tx) => deleteSession(tx, { session, reason: "done" }));
  await removed(session);
  assert.deepEqual(await stored(), [true, false]);
  assert.equal((await sessions.session(session)).observed_state, "deleted");
  await sessions.change("delete", (tx) => deleteSession(tx, { session: copy, reason: "done" }));
  await removed(copy);
  assert.deepEqual(await stored(), [false, false]);
});

test("a turn whose agent crashes runs again from the same head, and after its bounded runs it has failed", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation);
  const sessions = sessionsOf(foundation.db, stack.tenant);
  await sessions.agent("notes", { tries: 2 });
  const session = await sessions.create("notes");
  const mended = await sessions.tell(session, { text: "one", fail: 1 });
  const hopeless = await sessions.tell(session, { text: "two", fail: 9 });
  const first = await sessions.reaches(session, mended);
  assert.deepEqual([first.state, first.tries, first.reply], ["committed", 2, { said: ["one"] }]);
  assert.equal(first.last_failure_code, "agent_failed");
  const second = await sessions.reaches(session, hopeless);
  assert.deepEqual([second.state, second.tries, second.failure_code], ["failed", 2, "agent_failed"]);
  assert.equal((await sessions.session(session)).head_revision, 1n);
});
