import assert from "node:assert/strict";
import { test } from "node:test";
import { openKernel } from "../../test/support/kernel.ts";
import { endIncarnation, liveIncarnations, registerIncarnation } from "./incarnation.store.ts";
import { seconds } from "./time.ts";

const schema = { minimum: 11, maximum: 12 };

test("M5: a live process is listed with the schema versions that it understands, until it ends", async (t) => {
  const { db } = await openKernel(t);
  const id = await registerIncarnation(db, { process: "controller", release: "0.1.0", schema });
  const other = await registerIncarnation(db, { process: "gateway", release: "0.1.0", schema });
  const live = await liveIncarnations(db, seconds(60));
  assert.deepEqual(
    live.map((incarnation) => incarnation.id),
    [id, other],
  );
  assert.deepEqual([live[0]?.process, live[0]?.schema, live[0]?.deploymentEpoch], ["controller", schema, 1n]);
  await endIncarnation(db, id);
  await endIncarnation(db, id);
  assert.deepEqual(
    (await liveIncarnations(db, seconds(60))).map((incarnation) => incarnation.id),
    [other],
  );
});

test("M5: a process that was not seen for long is not counted as live", async (t) => {
  const { db, ask } = await openKernel(t);
  const id = await registerIncarnation(db, { process: "controller", release: "0.1.0", schema });
  await ask("update holdfast.incarnations set seen_at = seen_at - interval '61 seconds'");
  assert.deepEqual(await liveIncarnations(db, seconds(60)), []);
  assert.deepEqual(
    (await liveIncarnations(db, seconds(120))).map((incarnation) => incarnation.id),
    [id],
  );
});
