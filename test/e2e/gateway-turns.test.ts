import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, test } from "node:test";
import { uuidv7 } from "../../src/core/ids.ts";
import type { ActivationView } from "../../src/wire/activation.ts";
import { tenantA } from "../support/kernel.ts";
import { all, openSessionApi, refused } from "../support/session-api.ts";
import { insertCommit, insertWaiting } from "../support/session-rows.ts";

const { blobs, kernel, client, newSession, send, raw } = await openSessionApi({ after });

test("S2: an activation is admitted once by its id, in order, whoever sends it how often", async () => {
  const session = await newSession();
  const id = uuidv7();
  const sent = await Promise.all(Array.from({ length: 8 }, () => send(session.id, "hello", id)));
  for (const one of sent) assert.deepEqual(one, sent[0]);
  assert.deepEqual([sent[0]?.ordinal, sent[0]?.state, sent[0]?.stimulus], [1, "queued", { text: "hello" }]);
  await assert.rejects(send(session.id, "other", id), refused("conflict"));
  // Another session may use the id for something else.
  const other = await newSession();
  assert.equal((await send(other.id, "other", id)).ordinal, 1);
  const fresh = await raw("POST", `/v1/sessions/${session.id}/activations`, { stimulus: {} });
  const made = (await fresh.json()) as ActivationView;
  assert.deepEqual(
    [fresh.status, made.ordinal, fresh.headers.get("location")],
    [201, 2, `/v1/sessions/${session.id}/activations/${made.id}`],
  );
  const again = await raw("POST", `/v1/sessions/${session.id}/activations`, { id: made.id, stimulus: {} });
  assert.deepEqual([again.status, await again.json()], [200, made]);
  await client.cancelActivation(session.id, id);
  assert.equal((await send(session.id, "hello", id)).state, "cancelled");
});

test("a session's line is bounded, and room comes back", async () => {
  const session = await newSession();
  const [first] = await Promise.all([1, 2, 3].map((n) => send(session.id, `turn ${n}`)));
  await assert.rejects(send(session.id, "one too many"), refused("queue_full"));
  assert.ok(first !== undefined);
  const cancelled = await client.cancelActivation(session.id, first.id, { reason: "not needed" });
  assert.deepEqual([cancelled.state, cancelled.cancel_reason], ["cancelled", "not needed"]);
  assert.deepEqual(await client.cancelActivation(session.id, first.id), cancelled);
  assert.equal((await send(session.id, "there is room")).state, "queued");
});

test("a granted permission lets the activation that waits for it run again, and no other", async () => {
  const session = await newSession();
  const activation = await send(session.id, "add milk");
  const turn = { session: session.id, activation: activation.id };
  const action = { type: "grant_permission", permission: "notes.write", reason: "to keep a note" } as const;
  await insertWaiting(kernel, tenantA, turn, action);
  const waiting = await client.getActivation(session.id, activation.id);
  assert.deepEqual([waiting.state, waiting.required_action], ["waiting", action]);

  const other = await client.grantPermission(session.id, "notes.read");
  assert.deepEqual(other.permissions, ["notes.read"]);
  assert.equal((await client.getActivation(session.id, activation.id)).state, "waiting");
  await assert.rejects(
    client.grantPermission(session.id, "notes.write", { ifMatch: client.etagOf(session) }),
    refused("precondition_failed"),
  );
  const granted = await client.grantPermission(session.id, "notes.write");
  assert.deepEqual(granted.permissions, ["notes.read", "notes.write"]);
  assert.equal((await client.getActivation(session.id, activation.id)).state, "queued");
  assert.deepEqual(await client.grantPermission(session.id, "notes.write"), granted);
  for (const permission of ["", "Two words", "x".repeat(64)]) {
    await assert.rejects(client.grantPermission(session.id, permission), refused("invalid_request"));
  }
});

test("an activation that waits for somebody to say so is retried once it is said, under the version that was seen", async () => {
  const session = await newSession();
  const activation = await send(session.id, "again");
  await assert.rejects(client.retryActivation(session.id, activation.id), refused("conflict"));
  const turn = { session: session.id, activation: activation.id };
  await insertWaiting(kernel, tenantA, turn, { type: "retry_activation", reason: "the mailbox was busy" });
  await assert.rejects(
    client.retryActivation(session.id, activation.id, { ifMatch: '"1"' }),
    refused("precondition_failed"),
  );
  const retried = await client.retryActivation(session.id, activation.id);
  assert.deepEqual([retried.state, retried.required_action], ["queued", null]);
});

test("S13: what was committed is listed, read, copied and downloaded as it was; nothing else is", async () => {
  const session = await newSession();
  const bytes = Buffer.from("a bundle");
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  for (const revision of [1, 2, 3]) {
    const { id: activation } = await send(session.id, `turn ${revision}`);
    const key = `tenant-a/bundle-${session.id}-${revision}`;
    const bundle = revision === 1 ? null : { key, bytes: bytes.length, sha256 };
    if (revision === 2) blobs.objects.set(key, bytes);
    await insertCommit(
      kernel,
      tenantA,
      { session: session.id, activation },
      { revision, reply: { revision }, bundle },
    );
  }
  assert.equal((await client.getSession(session.id)).head_revision, 3);
  const revisions = await all(client.listRevisions(session.id, { limit: 2 }));
  assert.deepEqual(
    revisions.map(({ revision }) => revision),
    [3, 2, 1],
  );
  const second = await client.getRevision(session.id, 2);
  assert.deepEqual(second, revisions[1]);
  assert.deepEqual(second.bundle, { bytes: bytes.length, sha256 });
  const { body, revision } = await client.downloadBundle(session.id, 2);
  assert.deepEqual(Buffer.from(await new Response(body).arrayBuffer()), bytes);
  assert.deepEqual(revision, second);
  const plain = await raw("GET", `/v1/sessions/${session.id}/revisions/2/bundle`);
  assert.deepEqual(
    ["content-type", "content-length", "etag", "repr-digest"].map((name) => plain.headers.get(name)),
    ["application/zstd", "8", `"${sha256}"`, `sha-256=:${Buffer.from(sha256, "hex").toString("base64")}:`],
  );
  await plain.body?.cancel();
  await assert.rejects(client.downloadBundle(session.id, 1), refused("not_found"));
  await assert.rejects(client.downloadBundle(session.id, 3), refused("gone"));
  await assert.rejects(client.getRevision(session.id, 4), refused("not_found"));

  const copy = await client.createSession({
    agent: session.agent,
    from: { session_id: session.id, revision: 2 },
  });
  assert.equal(copy.head_revision, 1);
  const [first] = await all(client.listRevisions(copy.id));
  assert.deepEqual(
    [first?.bundle, first?.from, first?.activation_id],
    [second.bundle, { session_id: session.id, revision: 2 }, null],
  );
  await assert.rejects(
    client.createSession({ agent: session.agent, from: { session_id: session.id, revision: 9 } }),
    refused("not_found"),
  );
});

test("the transcript has every turn in order, forwards and backwards, page by page", async () => {
  const session = await newSession();
  for (const n of [1, 2, 3, 4, 5]) {
    const { id: activation } = await send(session.id, `turn ${n}`);
    const turn = { session: session.id, activation };
    if (n < 5) await insertCommit(kernel, tenantA, turn, { revision: n, reply: { n }, bundle: null });
  }
  const turns = await all(client.listActivations(session.id, { limit: 2 }));
  assert.deepEqual(
    turns.map(({ ordinal, stimulus, reply, state }) => [ordinal, stimulus["text"], reply, state]),
    [
      [1, "turn 1", { n: 1 }, "committed"],
      [2, "turn 2", { n: 2 }, "committed"],
      [3, "turn 3", { n: 3 }, "committed"],
      [4, "turn 4", { n: 4 }, "committed"],
      [5, "turn 5", null, "queued"],
    ],
  );
  const backwards = await all(client.listActivations(session.id, { order: "desc", limit: 3 }));
  assert.deepEqual(backwards, turns.toReversed());
  assert.deepEqual(await all(client.listActivations(session.id, { state: "queued" })), turns.slice(4));
  const { next_page_token } = await client.listActivations(session.id, { limit: 2 }).page();
  const other = await newSession();
  await assert.rejects(
    client.listActivations(other.id).page(next_page_token ?? ""),
    refused("invalid_cursor"),
  );
});
