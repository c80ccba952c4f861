import assert from "node:assert/strict";
import { after, test } from "node:test";
import type { TenantId } from "../../src/core/ids.ts";
import { openArena } from "../support/arena.ts";
import { insertSession, publishReply, type Rows } from "../support/deliveries.ts";
import { openReceiver } from "../support/receiver.ts";
import { until } from "../support/until.ts";

/** A moment of the first delivery, and how often the destination then hears it. */
const points: readonly (readonly [moment: string, heard: number])[] = [
  ["commit beginDelivery", 1],
  ["committed beginDelivery", 1],
  ["call egress", 1],
  // The destination has it, and has not answered.
  ["called", 2],
  ["returned egress", 2],
  ["commit settleDelivery", 2],
  ["committed settleDelivery", 1],
];
const claims = ["commit claim publication leases", "committed claim publication leases"];

const arena = await openArena({ after }, { leaseMs: 4_000 });
const receiver = await openReceiver({ after });
const rows: Rows = { db: arena.foundation.db, ask: arena.rows };

/** A session that tells the destination two things. Whose they are stands in the URL. */
async function twoReplies(tenant: TenantId) {
  const destination = { name: "hook", url: `${receiver.url}/${tenant}/` };
  const { session } = await insertSession(rows, tenant, [destination]);
  const first = await publishReply(rows, tenant, { session, ordinal: 1 });
  const second = await publishReply(rows, tenant, { session, ordinal: 2 });
  return { tenant, first, second };
}

const heardOf = (tenant: TenantId) => receiver.heard.filter(({ path }) => path === `/${tenant}/`);

const allDelivered = () =>
  until("everything is delivered", async () => {
    const left = await arena.rows("select from holdfast.publication_outbox where state <> 'delivered'");
    return left.length === 0;
  });

test(`S8 S12: SIGKILL at each point of a delivery: ${points.map(([moment]) => moment).join(", ")}`, async () => {
  const victims = await Promise.all(
    points.map(async ([moment, heard], index) => ({
      moment,
      heard,
      tenant: await arena.addTenant(`point-${index}`),
    })),
  );
  const called = victims.find(({ moment }) => moment === "called")?.tenant;
  let killed = false;
  receiver.answer((heard, response) => {
    if (killed || heard.path !== `/${called}/`) response.writeHead(204).end();
  });
  const stops = victims.filter(({ moment }) => moment !== "called");
  const controller = await arena.controller({
    stops: stops.map(({ moment, tenant }) => ({ moment, nth: 1, how: "wait", tenant })),
  });
  const told: Awaited<ReturnType<typeof twoReplies>>[] = [];
  for (const { tenant } of victims) told.push(await twoReplies(tenant));
  await Promise.all(stops.map(({ tenant }) => controller.heard("at", (news) => news.tenant === tenant)));
  await until("the last one is called", () => called !== undefined && heardOf(called).length === 1);
  killed = true;
  controller.signal("SIGKILL");
  assert.equal(await controller.ended, "SIGKILL");

  const successor = await arena.controller();
  await allDelivered();
  for (const { tenant, moment, heard } of victims) {
    const replies = told.find((one) => one.tenant === tenant);
    const ids = heardOf(tenant).map(({ id }) => id);
    const expected = [...Array.from({ length: heard }, () => replies?.first), replies?.second];
    assert.deepEqual(ids, expected, moment);
  }
  assert.deepEqual(await arena.rows("select from holdfast.leases where kind = 'publication'"), []);
  await successor.close();
});

for (const [index, moment] of claims.entries()) {
  test(`S8 S12: SIGKILL at ${moment}: everything is delivered once, in its order`, async () => {
    const tenant = await arena.addTenant(`claim-${index}`);
    receiver.answer((_heard, response) => void response.writeHead(204).end());
    const controller = await arena.controller({ stops: [{ moment, nth: 1, how: "kill", tenant: "" }] });
    const { first, second } = await twoReplies(tenant);
    assert.equal(await controller.ended, "SIGKILL");
    const successor = await arena.controller();
    await allDelivered();
    assert.deepEqual(
      heardOf(tenant).map(({ id }) => id),
      [first, second],
    );
    await successor.close();
  });
}

test("S8 E6: a publisher that is suspended in a call is taken over; when it wakes it changes nothing, and its duplicate has the same id", async () => {
  const tenant = await arena.addTenant("suspended");
  let asleep = true;
  receiver.answer((_heard, response) => {
    if (!asleep) response.writeHead(204).end();
  });
  const zombie = await arena.controller();
  const { first, second } = await twoReplies(tenant);
  await until("it is called", () => heardOf(tenant).length === 1);
  zombie.signal("SIGSTOP");
  asleep = false;
  const successor = await arena.controller();
  await allDelivered();
  const settled = await arena.rows("select * from holdfast.publication_outbox order by publication_id");
  zombie.signal("SIGCONT");
  await zombie.close();
  assert.equal(await zombie.ended, 0);
  assert.deepEqual(
    await arena.rows("select * from holdfast.publication_outbox order by publication_id"),
    settled,
  );
  assert.deepEqual(
    heardOf(tenant).map(({ id }) => id),
    [first, first, second],
  );
  await successor.close();
});
