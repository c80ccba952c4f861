import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { signedHeaders } from "../../src/deliveries/signature.ts";
import { signingKeysIn } from "../../src/deliveries/signing-keys.ts";
import { hastyTries, loopbackEgress } from "../support/publisher.ts";
import { openReceiver } from "../support/receiver.ts";
import { sessionsOf } from "../support/sessions.ts";
import { testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

test("S7 S8: what an agent replies arrives at its destination, signed and in order, once it is committed and not else", async (t) => {
  const stack = await testStack(t);
  const receiver = await openReceiver(t);
  const foundation = await stack.foundation("controller");
  const folder = join(stack.directory, "signing-keys");
  const key = randomBytes(32);
  await mkdir(join(folder, stack.tenant, "hook"), { recursive: true });
  await writeFile(join(folder, stack.tenant, "hook", "key"), `whsec_${key.toString("base64")}\n`);
  const deliveries = {
    egress: loopbackEgress(),
    keys: signingKeysIn(folder),
    settling: { policy: hastyTries },
  };
  await stack.controller(foundation, { deliveries });
  const sessions = sessionsOf(foundation.db, stack.tenant);
  const secrets = [{ name: "hook", key: "key" }];
  await sessions.agent("notes", {
    tries: 1,
    destinations: [{ name: "hook", url: `${receiver.url}/replies`, secrets }],
  });
  const session = await sessions.create("notes");
  const one = await sessions.tell(session, { text: "one" });
  const lost = await sessions.tell(session, { text: "lost", fail: 1 });
  const two = await sessions.tell(session, { text: "two" });
  // Each of three turns starts two processes.
  await sessions.reaches(session, two, undefined, 60_000);
  assert.equal((await sessions.read(session, lost)).state, "failed");
  await until("both replies were told", async () => {
    const told = await stack.rows("select from holdfast.publication_outbox where state = 'delivered'");
    return told.length === 2;
  });
  const rows = await stack.rows<{ readonly id: string }>(
    "select publication_id as id from holdfast.publication_outbox order by ordinal",
  );
  assert.deepEqual(
    receiver.heard.map(({ id }) => id),
    rows.map(({ id }) => id),
  );
  assert.deepEqual(
    receiver.heard.map(({ body }) => (JSON.parse(body) as { readonly data: unknown }).data),
    [
      { session_id: session, activation_id: one, ordinal: 1, revision: 1, reply: { said: ["one"] } },
      { session_id: session, activation_id: two, ordinal: 3, revision: 2, reply: { said: ["one", "two"] } },
    ],
  );
  for (const { id, headers, body } of receiver.heard) {
    const at = Number(headers["webhook-timestamp"]);
    const expected = signedHeaders({ id, at, body: Buffer.from(body), keys: [key] });
    assert.equal(headers["webhook-signature"], expected["webhook-signature"]);
  }
});
