import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, test } from "node:test";
import { openEgress } from "../../src/core/egress/egress.ts";
import type { TenantId } from "../../src/core/ids.ts";
import { createTenant } from "../../src/core/tenant.store.ts";
import { seconds } from "../../src/core/time.ts";
import { signedHeaders } from "../../src/deliveries/signature.ts";
import { signingKeysIn } from "../../src/deliveries/signing-keys.ts";
import type { Destination } from "../../src/wire/agent.ts";
import { insertSession, insertTemplate, publishReply, type Rows } from "../support/deliveries.ts";
import { hastyTries, openPublisher } from "../support/publisher.ts";
import { type Answer, openReceiver } from "../support/receiver.ts";
import { type StackScope, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

interface Row {
  readonly publication_id: string;
  readonly state: string;
  readonly tries: number;
  readonly last_error: string | null;
  readonly last_status: number | null;
}

// Replies are told here that no turn committed: what is always true of sessions is not, of these.
const stack = await testStack({ after }, "acme", { invariants: false });
const foundation = await stack.foundation("publisher");
const rows: Rows = { db: foundation.db, ask: (text, values = []) => stack.rows(text, [...values]) };

/** A destination that is called over real HTTP, and sessions that tell it something. */
async function openWorld(outer: StackScope) {
  const closers: (() => void | Promise<void>)[] = [];
  const t: StackScope = { after: (hook) => void closers.push(hook) };
  outer.after(async () => {
    for (const closer of closers.splice(0).toReversed()) await closer();
  });
  const receiver = await openReceiver(t);
  const hook = { name: "hook", url: `${receiver.url}/hook` };
  const readRow = async (id: string) => {
    const [row] = await stack.rows<Row>(
      "select * from holdfast.publication_outbox where publication_id = $1",
      [id],
    );
    assert.ok(row);
    return row;
  };
  return {
    t,
    receiver,
    hook,
    session: (tenant: TenantId = stack.tenant, destinations: readonly Destination[] = [hook]) =>
      insertSession(rows, tenant, destinations),
    publish: (session: string, ordinal: number, tenant: TenantId = stack.tenant) =>
      publishReply(rows, tenant, { session, ordinal }),
    readRow,
    settled: (id: string) =>
      until("it is settled", async () => {
        const row = await readRow(id);
        return row.state === "pending" ? null : row;
      }),
  };
}

const answers = (...statuses: readonly number[]): Answer => {
  return (_heard, response, nth) => void response.writeHead(statuses[nth - 1] ?? 204).end();
};

test("S8: a destination that fails is called again under the same id, with the same words, until it takes it", async (t) => {
  const world = await openWorld(t);
  const { session } = await world.session();
  world.receiver.answer(answers(500, 503, 204));
  openPublisher(world.t, foundation);
  const id = await world.publish(session, 1);
  const row = await world.settled(id);
  assert.deepEqual([row.state, row.tries, row.last_error, row.last_status], ["delivered", 3, null, 204]);
  const { heard } = world.receiver;
  assert.deepEqual(
    heard.map((one) => one.id),
    [id, id, id],
  );
  assert.equal(new Set(heard.map(({ body }) => body)).size, 1);
  const told = JSON.parse(heard[0]?.body ?? "") as Record<string, unknown>;
  assert.deepEqual(
    { ...told, created_at: typeof told["created_at"] },
    {
      id,
      type: "activation.reply",
      created_at: "string",
      session_id: session,
      destination: "hook",
      data: { session_id: session, ordinal: 1, reply: { text: "reply 1" } },
    },
  );
});

test("S8: a destination that never takes it makes a dead letter after a bounded number of tries", async (t) => {
  const world = await openWorld(t);
  const { session } = await world.session();
  world.receiver.answer((_heard, response) => void response.writeHead(500).end());
  openPublisher(world.t, foundation);
  const row = await world.settled(await world.publish(session, 1));
  assert.deepEqual(
    [row.state, row.tries, row.last_error, row.last_status],
    ["dead", hastyTries.triesMax, "The destination answered 500.", 500],
  );
  assert.equal(world.receiver.heard.length, hastyTries.triesMax);
});

const ways: readonly {
  readonly title: string;
  readonly answer: Answer;
  readonly end: Partial<Row>;
  readonly heard: number;
}[] = [
  {
    title: "one that resets the connection is called again",
    answer: (_heard, response, nth) =>
      void (nth === 1 ? response.socket?.resetAndDestroy() : response.writeHead(200).end()),
    end: { state: "delivered", tries: 2 },
    heard: 2,
  },
  {
    title: "one that hangs is left after its time and called again",
    answer: (_heard, response, nth) => void (nth === 1 ? undefined : response.writeHead(200).end()),
    end: { state: "delivered", tries: 2 },
    heard: 2,
  },
  {
    title: "one that hangs in the middle of its answer has given its receipt",
    answer: (_heard, response) => void response.writeHead(202).write("and"),
    end: { state: "delivered", tries: 1, last_status: 202 },
    heard: 1,
  },
  {
    title: "one that answers without end has given its receipt",
    answer: (_heard, response) => {
      response.on("error", () => undefined);
      response.writeHead(200);
      const more = () => {
        while (!response.destroyed && response.write("x".repeat(65_536)));
        response.once("drain", more);
      };
      more();
    },
    end: { state: "delivered", tries: 1 },
    heard: 1,
  },
  {
    title: "one that answers 410 is not called again",
    answer: answers(410),
    end: { state: "dead", tries: 1, last_status: 410 },
    heard: 1,
  },
  {
    title: "one that redirects is not followed",
    answer: (_heard, response) => void response.writeHead(307, { location: "/elsewhere" }).end(),
    end: { state: "dead", tries: hastyTries.triesMax },
    heard: hastyTries.triesMax,
  },
];

for (const { title, answer, end, heard } of ways) {
  test(`S8: of destinations, ${title}`, async (t) => {
    const world = await openWorld(t);
    const { session } = await world.session();
    world.receiver.answer(answer);
    openPublisher(world.t, foundation, { timeoutMs: 300 });
    const id = await world.publish(session, 1);
    const row = await world.settled(id);
    for (const [name, value] of Object.entries(end)) assert.equal(row[name as keyof Row], value, name);
    assert.deepEqual(
      world.receiver.heard.map((one) => [one.id, one.path]),
      Array.from({ length: heard }, () => [id, "/hook"]),
    );
  });
}

test("S8: what was answered too late comes again, with the same id", async (t) => {
  const world = await openWorld(t);
  const { session } = await world.session();
  let answerLate = () => {};
  world.receiver.answer((_heard, response, nth) => {
    if (nth > 1) answerLate();
    else answerLate = () => void response.writeHead(204).end();
    if (nth > 1) response.writeHead(204).end();
  });
  openPublisher(world.t, foundation, { timeoutMs: 200 });
  const id = await world.publish(session, 1);
  assert.equal((await world.settled(id)).tries, 2);
  assert.deepEqual(new Set(world.receiver.heard.map((one) => one.id)), new Set([id]));
});

test("S8: replies of a session arrive in its order, whatever the destination does; other sessions do not wait", async (t) => {
  const world = await openWorld(t);
  const [slow, quick] = [await world.session(), await world.session()];
  world.receiver.answer((heard, response, nth) => {
    const fails = heard.body.includes(slow.session) && heard.ordinal === 1 && nth < 3;
    response.writeHead(fails ? 500 : 204).end();
  });
  for (const { session } of [slow, quick]) for (let n = 1; n <= 4; n += 1) await world.publish(session, n);
  openPublisher(world.t, foundation);
  openPublisher(world.t, await stack.foundation("other"));
  await until("all are delivered", async () => {
    const left = await stack.rows(
      "select from holdfast.publication_outbox where session_id = any ($1) and state <> 'delivered'",
      [[slow.session, quick.session]],
    );
    return left.length === 0;
  });
  const heardOf = (session: string) =>
    world.receiver.heard.filter(({ body }) => body.includes(session)).map(({ ordinal }) => ordinal);
  assert.deepEqual(heardOf(slow.session), [1, 1, 1, 2, 3, 4]);
  assert.deepEqual(heardOf(quick.session), [1, 2, 3, 4]);
});

test("S8: a dead letter holds up nobody, and comes again when it is redelivered", async (t) => {
  const world = await openWorld(t);
  const { session } = await world.session();
  let down = true;
  world.receiver.answer((heard, response) => {
    response.writeHead(down && heard.ordinal === 1 ? 410 : 204).end();
  });
  openPublisher(world.t, foundation);
  const [first, second] = [await world.publish(session, 1), await world.publish(session, 2)];
  assert.equal((await world.settled(second)).state, "delivered");
  assert.equal((await world.readRow(first)).state, "dead");
  down = false;
  const scopes = ["deliveries:read", "deliveries:write"] as const;
  const { client } = await stack.gateway(foundation, { scopes });
  const revived = await client.redeliver(first);
  assert.deepEqual([revived.state, revived.tries], ["pending", 0]);
  assert.equal((await world.settled(first)).state, "delivered");
  assert.equal(world.receiver.heard.filter(({ id }) => id === first).length, 2);
});

test("S10: no transaction is open while a destination is called", async (t) => {
  const world = await openWorld(t);
  const { session } = await world.session();
  let goOn = () => {};
  world.receiver.answer((_heard, response) => {
    goOn = () => void response.writeHead(204).end();
  });
  openPublisher(world.t, foundation);
  const id = await world.publish(session, 1);
  await until("it is called", () => world.receiver.heard.length === 1);
  const open = await stack.rows(
    `select application_name, query from pg_stat_activity
     where datname = current_database() and xact_start is not null and pid <> pg_backend_pid()
       and state like 'idle in transaction%'`,
  );
  assert.deepEqual(open, []);
  const [locks] = await stack.rows<{ held: number }>(
    "select count(*)::int as held from pg_locks where locktype = 'advisory' and database is not null and mode = 'ExclusiveLock'",
  );
  assert.equal(locks?.held, 0);
  goOn();
  await world.settled(id);
});

test("S8: a hanging destination has its share of the places and no more", async (t) => {
  const world = await openWorld(t);
  const other = await createTenant(foundation.db, "other");
  const hanging = await openReceiver(world.t);
  hanging.answer(() => undefined);
  const stuck = { name: "hook", url: `${hanging.url}/stuck` };
  for (let n = 0; n < 8; n += 1) {
    await world.publish((await world.session(stack.tenant, [stuck])).session, 1);
  }
  const bounds = { deliveriesMax: 6, tenantMax: 4, originMax: 2 };
  openPublisher(world.t, foundation, { bounds });
  await until("the hanging one has its share", () => hanging.open().now === bounds.originMax);
  const healthy = await world.publish((await world.session()).session, 1);
  const others = await world.publish((await world.session(other)).session, 1, other);
  assert.equal((await world.settled(healthy)).state, "delivered");
  assert.equal((await world.settled(others)).state, "delivered");
  assert.equal(hanging.open().most, bounds.originMax);
});

test("S8: what waits goes where the agent's newest template says, and is dead where none names its destination", async (t) => {
  const world = await openWorld(t);
  const { tenant } = stack;
  const { session, agent } = await world.session(tenant, [
    { name: "hook", url: "http://127.0.0.1:1/nobody" },
  ]);
  const id = await world.publish(session, 1);
  const policy = { ...hastyTries, triesMax: 1_000 };
  openPublisher(world.t, foundation, { settling: { policy } });
  const tried = await until("it was tried", async () => {
    const row = await world.readRow(id);
    return row.last_error === null ? null : row;
  });
  assert.equal(tried.last_error, "The destination was not reached: 127.0.0.1:1 can't be reached.");
  await insertTemplate(rows, tenant, { agent, version: 2, destinations: [world.hook] });
  assert.equal((await world.settled(id)).state, "delivered");

  const unknown = await publishReply(rows, tenant, { session, ordinal: 2, destination: "gone" });
  const dead = await world.settled(unknown);
  assert.deepEqual(
    [dead.state, dead.last_error],
    ["dead", "No template of the session's agent names the destination gone."],
  );
});

test("S8: an address of an inner network is never called, however it is written, unless it is configured", async (t) => {
  const world = await openWorld(t);
  const { port } = new URL(world.receiver.url);
  const inside = new Map([
    ["mixed.example", ["8.8.8.8", "127.0.0.1"]],
    ["inner.example", ["10.0.0.7"]],
  ]);
  const resolve = (name: string) => Promise.resolve(inside.get(name) ?? []);
  const hosts = ["127.0.0.1", "2130706433", "0177.0.0.1", "[::ffff:127.0.0.1]", ...inside.keys()];
  const policy = { ...hastyTries, triesMax: 1 };
  const egress = openEgress({ allowed: [], resolve });
  openPublisher(world.t, foundation, { egress, settling: { policy } });
  for (const host of hosts) {
    const url = `https://${host}:${port}/hook`;
    const { session } = await world.session(stack.tenant, [{ name: "hook", url }]);
    const { state, last_error } = await world.settled(await world.publish(session, 1));
    assert.equal(state, "dead", host);
    assert.match(
      last_error ?? "",
      /^The address may not be called: .* an address that is not a public one\.$/,
    );
  }
  assert.deepEqual(world.receiver.heard, []);
});

test("S8 S12: a publisher that stops in the middle of a call gives it back, and another delivers it under the same id", async (t) => {
  const world = await openWorld(t);
  const { session } = await world.session();
  world.receiver.answer((_heard, response, nth) => {
    if (nth > 1) response.writeHead(204).end();
  });
  const first = openPublisher(world.t, foundation, { drainMs: 0 });
  const id = await world.publish(session, 1);
  await until("it is called", () => world.receiver.heard.length === 1);
  await first.stop();
  openPublisher(world.t, await stack.foundation("successor"));
  const row = await world.settled(id);
  assert.deepEqual([row.state, row.tries], ["delivered", 2]);
  assert.deepEqual(
    world.receiver.heard.map((one) => one.id),
    [id, id],
  );
});

test("S8: a destination that asks for a pause gets it", async (t) => {
  const world = await openWorld(t);
  const { session } = await world.session();
  world.receiver.answer((_heard, response) => void response.writeHead(429, { "retry-after": "120" }).end());
  const policy = { ...hastyTries, max: seconds(600) };
  openPublisher(world.t, foundation, { settling: { policy } });
  const id = await world.publish(session, 1);
  await until("it was tried", async () => (await world.readRow(id)).last_status === 429);
  const [lease] = await stack.rows<{ pause: number }>(
    "select extract(epoch from due_at - clock_timestamp())::float8 as pause from holdfast.leases where resource_id = $1",
    [id],
  );
  assert.ok(lease && lease.pause > 100 && lease.pause <= 120, `${lease?.pause} s`);
});

test("S8: each try is signed with the keys of its template, read anew; one that can't be signed is not sent", async (t) => {
  const world = await openWorld(t);
  const folder = join(stack.directory, "signing-keys");
  const place = join(folder, stack.tenant, "hook");
  await mkdir(place, { recursive: true });
  const [current, previous] = [randomBytes(32), randomBytes(32)];
  await writeFile(join(place, "current"), `whsec_${current.toString("base64")}\n`);
  const secrets = [
    { name: "hook", key: "current" },
    { name: "hook", key: "previous" },
  ];
  const destination = { ...world.hook, secrets };
  const { session } = await world.session(stack.tenant, [destination]);
  const lines: string[] = [];
  const log = (...words: readonly unknown[]) => void lines.push(JSON.stringify(words));
  const policy = { ...hastyTries, triesMax: 1_000 };
  openPublisher(world.t, foundation, { keys: signingKeysIn(folder), settling: { policy }, log });
  const id = await world.publish(session, 1);
  const waiting = await until("it can't be signed", async () => {
    const row = await world.readRow(id);
    return row.last_error === null ? null : row;
  });
  assert.equal(
    waiting.last_error,
    "It can't be signed: the signing key hook/previous can't be read (ENOENT).",
  );
  assert.equal(world.receiver.heard.length, 0);
  await writeFile(join(place, "previous"), `whsec_${previous.toString("base64")}\n`);
  assert.equal((await world.settled(id)).state, "delivered");
  const [heard] = world.receiver.heard;
  assert.ok(heard);
  const at = Number(heard.headers["webhook-timestamp"]);
  assert.ok(Math.abs(Date.now() / 1000 - at) < 60);
  const body = Buffer.from(heard.body);
  const expected = signedHeaders({ id, at, body, keys: [current, previous] });
  assert.equal(heard.headers["webhook-signature"], expected["webhook-signature"]);
  const kept = JSON.stringify([lines, waiting, await stack.rows("select * from holdfast.resource_changes")]);
  for (const key of [current, previous]) assert.ok(!kept.includes(key.toString("base64")));
});
