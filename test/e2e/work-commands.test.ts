import assert from "node:assert/strict";
import { after, test } from "node:test";
import { seconds } from "../../src/core/time.ts";
import { apiRoutes } from "../../src/main/api.ts";
import { examine } from "../../src/main/doctor.ts";
import { exitCodes } from "../../src/wire/exit-codes.ts";
import type { WorkDetail } from "../../src/wire/work.ts";
import { defineWork } from "../../src/work/define.ts";
import { legacy } from "../../src/work/policy.ts";
import { registerVersion } from "../../src/work/version.store.ts";
import { noBlobs } from "../support/gateway.ts";
import { tenantA, tenantB } from "../support/kernel.ts";
import { runCommand } from "../support/run-command.ts";
import { openWorkApi } from "../support/work-api.ts";

const api = await openWorkApi({ after });
const { bench, clock } = api;
const { kernel, a } = bench;
const operated = await bench.start({
  routes: apiRoutes({ blobs: noBlobs, queueMax: 10, examine: (tenant) => examine(kernel.db, tenant) }),
});
after(() => operated.close());
const env = { HOLDFAST_URL: bench.gateway().address, HOLDFAST_TOKEN: a.token };
const holdfast = (words: readonly string[], input = "") => runCommand(words, { env, input });
const told = async (words: readonly string[], input = ""): Promise<string> => {
  const { code, stdout, stderr } = await holdfast(words, input);
  assert.equal(code, exitCodes.ok, `${words.join(" ")}: ${stderr}`);
  return stdout;
};

test("W9 W12: work is submitted from the command line once by its key, listed, and told as a time line in sentences", async () => {
  const words = ["work", "submit", "charge", "--version", "1", "--input", "-", "--key", "invoice-9"];
  const id = (await told(words, '{"cents": 500, "name": "s3cret"}')).trim();
  const again = await holdfast(words, '{"name": "s3cret", "cents": 500}');
  assert.deepEqual([again.stdout.trim(), /accepted before/.test(again.stderr)], [id, true]);
  const other = await holdfast(words, '{"cents": 501}');
  assert.deepEqual([other.code, /idempotency_conflict/.test(other.stderr)], [exitCodes.conflict, true]);
  const broken = await holdfast([...words, "-o", "json"], "{cents");
  assert.deepEqual([broken.code, /standard input is not JSON/.test(broken.stderr)], [exitCodes.usage, true]);
  // What the server would refuse has to be refused before it is made into something else.
  for (const [input, why] of [
    ['{"n":2,"n":3}', /this name stands twice/],
    ['{"n":1e400}', /number/],
    ["[".repeat(6_000), /levels/],
  ] as const) {
    const { code, stderr } = await holdfast(
      ["work", "submit", "charge", "--version", "1", "--input", "-"],
      input,
    );
    assert.equal(code, exitCodes.usage, stderr);
    assert.match(stderr, why);
  }

  const lost = await api.permit();
  await api.lose();
  await clock.advance(seconds(1));
  await api.done(lost, { type: "succeeded", result: "" });
  const list = await told(["get", "work", "--reason", "outcome_unknown", "--version", "1"]);
  assert.match(
    list,
    new RegExp(`^ID .* WHY *\n${id} +charge 1 +suspended +1/3 +default .* outcome_unknown *\n$`),
  );
  assert.match(await told(["describe", "work", id]), /^State +suspended: nobody knows what .*work resolve/m);
  const refused = await holdfast(["work", "requeue", id]);
  assert.equal(refused.code, exitCodes.conflict);
  const resolve = ["work", "resolve", id, "--verdict", "not_applied"];
  assert.equal((await holdfast(resolve)).code, exitCodes.usage, "how it is known has to be said");
  await clock.advance(seconds(1));
  assert.match(
    await told([...resolve, "--note", "asked the bank"]),
    new RegExp(
      `^${id} is suspended: its last attempt did nothing; .*work requeue ID\\S* has it tried again\n$`,
    ),
  );
  const twice = await holdfast([...resolve, "--note", "asked them twice"]);
  assert.equal(twice.code, exitCodes.conflict);
  assert.match(
    twice.stderr,
    new RegExp(
      `^error: ${id} can't be resolved: it is suspended: its last attempt did nothing; .+ has it tried again\\. caller-1 settled attempt 1: its effect has not happened: asked the bank\\.\n  \\S+.* describe work ID\\S tells everything`,
    ),
  );
  await clock.advance(seconds(1));
  assert.match(await told(["work", "requeue", `work/${id}`]), /^\S+ is retry_wait, due at /);
  await clock.advance(seconds(28));
  await api.done(await api.permit(), { type: "failed", code: "declined", message: "no money", final: true });

  const text = await told(["describe", "work", id]);
  assert.ok(!text.includes("s3cret"), "no payload");
  const line = text.slice(text.indexOf("Time line")).split("\n").slice(1, -1);
  const sentences = line.map((one) => one.replace(/^ {2}\S+ \S+ {2}/, ""));
  assert.deepEqual(sentences, [
    "It was accepted.",
    "Attempt 1 was admitted, 0.0s after its slot at +0.0s.",
    "Attempt 1 was lost with its worker: nobody knows what it did.",
    "It was taken out of its line: outcome_unknown.",
    "A late word came: attempt 1 succeeded. It is quarantined (expired) and decides nothing.",
    "caller-1 settled attempt 1: its effect has not happened: asked the bank.",
    "That ended: proven by caller-1.",
    "It was taken out of its line: not_applied.",
    "That ended: requeued by caller-1.",
    "Attempt 2 was admitted, 1.0s after its slot at +1m00s.",
    "Attempt 2 failed (declined: no money).",
    "It ended: failed.",
    "Attempt 3 (planned at +2m00s) was not needed or not admitted.",
  ]);
  assert.match(text, /^Policy +planned \(a\): attempts at \+0.0s, \+1m00s, \+2m00s; circuit window 5m00s$/m);
  const detail = JSON.parse(await told(["describe", "work", id, "-o", "json"])) as WorkDetail;
  assert.deepEqual([detail.state, detail.failure?.code], ["failed", "declined"]);
  const payload = JSON.parse(await told(["work", "payload", id, "-o", "json"])) as {
    input: { cents: number };
  };
  assert.equal(payload.input.cents, 500);
});

test("W11: several items are suspended, released and cancelled in one line; one that is refused does not keep the others from it", async () => {
  const ids = [await api.submit({ queue: "mail" }), await api.submit({ queue: "mail" })];
  const suspended = (await told(["work", "suspend", ...ids])).trim().split("\n");
  for (const [place, line] of suspended.entries()) {
    assert.match(line, new RegExp(`^${ids[place]} is suspended: an operator took it out; .*work release ID`));
  }
  const names = await told(["get", "work", "--reason", "operator", "-o", "name"]);
  assert.deepEqual(names.trim().split("\n").toSorted(), ids.map((id) => `work/${id}`).toSorted());
  const [first = "", second = ""] = ids;
  assert.match(await told(["work", "release", first.slice(0, 30)]), /is pending, due at/);
  const mixed = await holdfast(["work", "release", first, second]);
  assert.equal(mixed.code, exitCodes.conflict);
  assert.match(mixed.stdout, new RegExp(`^${second} is pending`));
  assert.match(
    mixed.stderr,
    new RegExp(`^error: ${first} can't be released: it is pending: its first attempt is due`),
  );
  const cancelled = await told(["work", "cancel", ...ids, "--reason", "not wanted", "-o", "json"]);
  assert.deepEqual(
    cancelled
      .trim()
      .split("\n")
      .map((one) => (JSON.parse(one) as { state: string }).state),
    ["cancelled_before_effect", "cancelled_before_effect"],
  );
  for (const [verb, words] of [
    ["suspend", "suspended"],
    ["requeue", "requeued"],
  ] as const) {
    const late = await holdfast(["work", verb, first]);
    assert.equal(late.code, exitCodes.conflict);
    assert.match(
      late.stderr,
      new RegExp(`^error: ${first} can't be ${words}: it is cancelled_before_effect at `),
    );
  }
  const settled = await holdfast(["work", "resolve", first, "--verdict", "applied", "--note", "seen"]);
  assert.match(
    settled.stderr,
    /it is cancelled_before_effect at .+ No attempt of it has an unknown outcome\./,
  );
  assert.equal(
    (await holdfast(["describe", "work", "00000000-0000-7000-8000-000000000000"])).code,
    exitCodes.not_found,
  );
});

test("W2: versions are listed with who runs them, retired and a tenant disabled by operators alone", async () => {
  await api.submit({ queue: "default" });
  const listed = await told(["work", "versions"]);
  assert.match(
    listed,
    /^NAME +VERSION +.*STANDING *\ncharge +1 +planned +manual_resolution +default +0 .* waits for a worker *\n$/,
  );
  const absent = await holdfast(["work", "retire", "charge", "1"]);
  assert.deepEqual([absent.code, /HOLDFAST_OPERATOR_API/.test(absent.stderr)], [exitCodes.not_found, true]);
  const operator = await bench.caller(tenantA, ["operator", "work:read"]);
  const asOperator = (...words: string[]) =>
    runCommand(words, { env: { HOLDFAST_URL: operated.address, HOLDFAST_TOKEN: operator.token } });
  assert.match(
    (await asOperator("work", "retire", "charge", "1")).stdout,
    /^charge 1 takes nothing new since /,
  );
  assert.match((await asOperator("work", "versions")).stdout, /waits for a worker/);
  const wrong = await asOperator("tenant", "disable", "tenant-b", "--confirm", "tenant-a");
  assert.equal(wrong.code, exitCodes.usage);
  const said = await asOperator("tenant", "disable", tenantB, "--confirm", tenantB);
  assert.match(said.stdout, /^tenant-b is disabled since /);
  assert.match(said.stderr, /never taken back: whoever goes on needs another tenant/);
  const done = await asOperator("tenant", "disable", tenantB, "--confirm", tenantB, "-o", "json");
  assert.equal((JSON.parse(done.stdout) as { tenant: string }).tenant, tenantB);
  assert.equal((await bench.call(bench.b, "GET", "/v1/work")).status, 401);
});

const plain = defineWork({
  name: "plain",
  version: "1",
  safety: "idempotent",
  policy: legacy(),
  run: () => null,
});

test("a delay is checked before it is sent, may be of days, and is refused with the reason where a plan has the times", async () => {
  const words = (name: string) => ["work", "submit", name, "--version", "1", "--input", "-", "--delay"];
  const wrong = await holdfast([...words("plain"), "soon"], "{}");
  assert.equal(wrong.code, exitCodes.usage);
  assert.match(
    wrong.stderr,
    /'--delay <duration>'.* must be a duration such as 30d, 12h or 1h30m, found "soon"/,
  );
  const planned = await holdfast([...words("charge"), "2d"], '{"cents": 1, "name": "late"}');
  assert.equal(planned.code, exitCodes.usage);
  assert.match(planned.stderr, /charge 1 has a plan of attempts, .* takes no --delay\n {2}Leave --delay out/);
  await registerVersion(kernel.db, plain);
  const id = (await told([...words("plain"), "2d"], "1")).trim();
  const found = JSON.parse(await told(["describe", "work", id, "-o", "json"])) as WorkDetail;
  assert.equal(Date.parse(found.next_due_at ?? "") - Date.parse(found.accepted_at), 2 * 86_400_000);
});
