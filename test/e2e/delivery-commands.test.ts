import assert from "node:assert/strict";
import { after, test } from "node:test";
import { exitCodes } from "../../src/wire/exit-codes.ts";
import { insertDelivery, insertSession, publishReply } from "../support/deliveries.ts";
import { openBench } from "../support/gateway.ts";
import { tenantA } from "../support/kernel.ts";
import { runCommand } from "../support/run-command.ts";

const bench = await openBench({ after });
const { kernel, a } = bench;
const env = { HOLDFAST_URL: bench.gateway().address, HOLDFAST_TOKEN: a.token };
const holdfast = (...words: string[]) => runCommand(words, { env });

test("S8: dead letters are listed, described and redelivered from the command line", async () => {
  const dead = await insertDelivery(kernel, tenantA, { state: "dead" });
  const { session } = await insertSession(kernel, tenantA);
  const told = await publishReply(kernel, tenantA, { session, ordinal: 7, destination: "inbox" });

  const list = await holdfast("get", "deliveries", "--state", "dead");
  assert.deepEqual([list.code, list.stderr], [exitCodes.ok, ""]);
  assert.match(
    list.stdout,
    new RegExp(`^ID .* LAST ERROR *\n${dead} .* hook +dead +1 .* answered 410\\. *\n$`),
  );
  const inbox = await holdfast(
    "get",
    "deliveries",
    "--session",
    session,
    "--destination",
    "inbox",
    "-o",
    "name",
  );
  assert.equal(inbox.stdout, `delivery/${told}\n`);
  const read = await holdfast("describe", "delivery", told, "-o", "json");
  assert.equal((JSON.parse(read.stdout) as { payload: { ordinal: number } }).payload.ordinal, 7);

  const described = await holdfast("describe", "delivery", dead);
  assert.match(described.stdout, /^State +dead: `holdfast redeliver` has it tried again$/m);
  assert.match(described.stdout, /^Last error +The destination answered 410\.$/m);

  const mixed = await holdfast("redeliver", `delivery/${dead}`, told);
  assert.equal(mixed.code, exitCodes.conflict);
  assert.equal(mixed.stdout, `${dead} is tried again for hook\n`);
  assert.match(mixed.stderr, /only a dead delivery can be delivered again/);
  const again = await holdfast("describe", "delivery", dead.slice(0, 13));
  assert.match(again.stdout, /^State +pending: tried next at /m);
  const none = await holdfast("get", "deliveries", "--state", "dead");
  assert.deepEqual([none.code, none.stdout, none.stderr], [exitCodes.ok, "", "no delivery fits\n"]);
});
