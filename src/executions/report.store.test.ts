import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, test } from "node:test";
import { type Begun, commit, openAttempts, outcomeOf } from "../../test/support/attempts.ts";
import { type Answer, openCallbacks } from "../../test/support/callbacks.ts";
import { tenantB } from "../../test/support/kernel.ts";
import { isHoldfastError } from "../core/errors.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import { callbackLimits } from "../wire/callback.ts";
import { decide } from "./attempt.ts";
import { advancePhase, recordStopped, recordStopping } from "./phase.store.ts";

const bench = await openAttempts({ after }, { slots: 80 });
const callbacks = await openCallbacks({ after }, bench.db);
const { post, transfer } = callbacks;
const sources = { engine: { repository: "e", ref: "main" }, module: { repository: "m", ref: "main" } };
const pins = { engine: commit, module: "d".repeat(40) };
const kinds = ["source", "compile", "publish"] as const;

interface Speaker {
  readonly begun: Begun;
  readonly sandbox: Sandbox;
  readonly token: string;
  readonly say: (path: string, body: unknown) => Promise<Answer>;
}

/** An attempt whose sandbox of that phase is released, and what it can say. */
async function speaker(
  phase: (typeof kinds)[number],
  job: Parameters<typeof bench.begin>[0] = {},
): Promise<Speaker> {
  const begun = await bench.begin({ sources, kinds, ...job });
  return speakerOf(begun, phase);
}

async function speakerOf(begun: Begun, phase: string): Promise<Speaker> {
  for (;;) {
    const view = await bench.released(begun.lease);
    const sandbox = view.sandboxes.find(({ state }) => state === "released");
    assert.ok(sandbox);
    const token = callbacks.token(sandbox);
    if (sandbox.step === phase)
      return { begun, sandbox, token, say: (path, body) => post(token, path, body) };
    await bench.step(begun.lease);
    await bench.kernel.ask(
      `insert into holdfast.source_pins (tenant_id, attempt_id, source, commit_id, sandbox_id)
       select $1, $2, source, commit, $3 from json_each_text($4::json) as p(source, commit) on conflict do nothing`,
      [begun.lease.tenant, begun.attempt, sandbox.id, JSON.stringify(pins)],
    );
  }
}

const content = (text: string) => {
  const bytes = Buffer.from(text);
  return {
    bytes,
    promise: { bytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") },
  };
};

async function store({ say }: Speaker, name: string, text: string): Promise<void> {
  const { bytes, promise } = content(text);
  const grant = await say(`/objects/${name}/upload`, promise);
  assert.equal(grant.status, 200, JSON.stringify(grant.body));
  assert.equal((await transfer(grant.body, bytes)).status, 204);
  assert.equal((await say(`/objects/${name}/complete`, promise)).status, 200);
}

async function unchanged(what: () => Promise<unknown>): Promise<void> {
  const before = await bench.digest();
  await what();
  assert.equal(await bench.digest(), before, "something was changed");
}

const refused = (answer: Answer, status: number, code: string) =>
  assert.deepEqual([answer.status, answer.code], [status, code], JSON.stringify(answer.body));

test("E9: pins come in several calls, add up, and never change", async () => {
  const { say, begun } = await speaker("source");
  const first = await say("/pins", { pins: { engine: pins.engine } });
  assert.deepEqual(first.body, { pins: { engine: pins.engine }, missing: ["module"] });
  await unchanged(async () => {
    assert.deepEqual((await say("/pins", { pins: { engine: pins.engine } })).body, first.body);
    // All or none: the new one is not stored beside the refused one.
    refused(await say("/pins", { pins: { module: pins.module, engine: "e".repeat(40) } }), 409, "conflict");
    refused(await say("/pins", { pins: { other: pins.engine } }), 400, "invalid_request");
    for (const body of [
      { pins: {} },
      { pins: { engine: "main" } },
      { pins: { engine: "E".repeat(40) } },
      {},
      { pins, more: 1 },
    ]) {
      refused(await say("/pins", body), 400, "invalid_request");
    }
  });
  assert.deepEqual((await say("/pins", { pins: { module: pins.module } })).body, { pins, missing: [] });
  await assert.rejects(
    bench.kernel.ask("update holdfast.source_pins set commit_id = repeat('f', 40) where attempt_id = $1", [
      begun.attempt,
    ]),
    /never changes/,
  );
});

test("E9: of two different pins at once one stands, and the same twice is both times success", async () => {
  const { say } = await speaker("source");
  const [one, other] = await Promise.all([
    say("/pins", { pins: { engine: "1".repeat(40) } }),
    say("/pins", { pins: { engine: "2".repeat(40) } }),
  ]);
  assert.deepEqual(
    [one.status, other.status].toSorted((a, b) => a - b),
    [200, 409],
  );
  const same = await Promise.all(
    Array.from({ length: 4 }, () => say("/pins", { pins: { module: pins.module } })),
  );
  assert.deepEqual(new Set(same.map(({ status }) => status)), new Set([200]));
});

test("E9: the compile phase does not start while a pin is missing, whoever asks", async () => {
  const { say, begun } = await speaker("source");
  await say("/pins", { pins: { engine: pins.engine } });
  await bench.driveTo(begun.lease, "advance");
  const view = await bench.look(begun.lease);
  const [source, compile] = view.phases;
  const planned = view.plan.phases[1];
  assert.ok(source && compile && planned);
  await unchanged(() =>
    assert.rejects(
      advancePhase(
        bench.db,
        begun.lease,
        view,
        {
          ended: { phase: source, state: "succeeded", failure: null },
          next: { phase: compile, planned, ordinal: 1 },
        },
        "test",
      ),
      (error) => isHoldfastError(error, "pins_missing"),
    ),
  );
  const step = decide(view);
  assert.ok(step.do === "advance" && step.ended?.failure?.code === "pins_missing" && step.next === null);
});

test("E9 E17: a takeover by another controller between release and report refuses nothing", async () => {
  const { say, begun } = await speaker("source");
  await bench.expire(begun.lease);
  assert.equal((await say("/pins", { pins: { engine: pins.engine } })).status, 200);
  const other = await bench.takeOver(begun.lease);
  assert.equal((await say("/pins", { pins: { module: pins.module } })).status, 200);
  assert.deepEqual((await bench.look(other)).pins, pins);
});

/** Every call that there is, in a form that its phase may make. */
const calls: readonly (readonly [string, unknown])[] = [
  ["/progress", { message: "m" }],
  ["/pins", { pins: { engine: commit } }],
  ["/result", { a: 1 }],
  ["/objects/o/upload", content("o").promise],
  ["/objects/o/complete", content("o").promise],
  ["/objects/source/o/download", {}],
  ["/artifact", { object: "o", files: [] }],
];

async function allRefused(token: string | null, status: number, code: string): Promise<void> {
  await unchanged(async () => {
    for (const [path, body] of calls) refused(await post(token, path, body), status, code);
  });
}

test("E17: without a token, with an altered one, or one of another key, nothing is said", async () => {
  const { sandbox, token } = await speaker("source");
  for (const wrong of [
    null,
    "hfs_",
    token.slice(0, -2),
    `${token}A`,
    token.replace(
      sandbox.id,
      sandbox.id.replace(/^./, (digit) => (digit === "0" ? "1" : "0")),
    ),
    token.replace(".tenant-a.", ".tenant-b."),
    token.replace(String(sandbox.deadline), String(sandbox.deadline + 1n)),
    token.replace("hfs_k1", "hfs_k2"),
  ]) {
    await allRefused(wrong, 401, "unauthenticated");
  }
});

test("E9 E17: a sandbox speaks from its release to its stop, and not before or after", async () => {
  const begun = await bench.begin({ sources, kinds });
  const { lease } = begun;
  const speaks = async () => {
    const [sandbox] = (await bench.look(lease)).sandboxes;
    assert.ok(sandbox);
    return callbacks.token(sandbox);
  };
  await bench.driveTo(lease, "hold");
  await allRefused(await speaks(), 409, "sandbox_fenced");
  await bench.driveTo(lease, "release");
  await allRefused(await speaks(), 409, "sandbox_fenced");
  const { sandbox, say, token } = await speakerOf(begun, "source");
  assert.equal((await say("/pins", { pins })).status, 200);
  await recordStopping(bench.db, lease, sandbox, "cancelled");
  await allRefused(token, 409, "sandbox_fenced");
  await recordStopped(bench.db, lease, sandbox, outcomeOf("stopped"), "proof");
  await allRefused(token, 409, "sandbox_fenced");
  await bench.cancel(begun.job);
  await bench.driveTo(lease, "nothing");
  await allRefused(token, 409, "sandbox_fenced");
});

test("E9 E17: a superseded sandbox, one of another tenant, and one that never was, say nothing", async () => {
  const first = await speaker("source");
  await speakerOf(first.begun, "compile");
  await allRefused(first.token, 409, "sandbox_fenced");
  const other = await speaker("source");
  await allRefused(callbacks.token(other.sandbox, tenantB), 409, "sandbox_fenced");
  const unknown = { ...other.sandbox, id: first.begun.attempt as Sandbox["id"] };
  await allRefused(callbacks.token(unknown), 409, "sandbox_fenced");
});

test("E17: past its deadline a sandbox says nothing, though nobody has stopped it yet", async () => {
  const { say, sandbox, begun } = await speaker("source");
  await bench.overdue(begun.attempt);
  // The token that it was given names the deadline that it was given; what counts is the row's.
  const token = callbacks.token(sandbox);
  refused(await say("/progress", { message: "m" }), 409, "sandbox_fenced");
  await allRefused(token, 409, "sandbox_fenced");
});

test("E17: reports that a phase of this kind can't make are a conflict", async () => {
  const { say } = await speaker("compile");
  await unchanged(async () => {
    refused(await say("/pins", { pins }), 409, "conflict");
    refused(await say("/artifact", { object: "o", files: [] }), 409, "conflict");
  });
});

test("E17: progress is what the phase does now; an equal one changes nothing", async () => {
  const { say, begun } = await speaker("source");
  assert.equal((await say("/progress", { message: "a\u0007b\nc", percent: 40 })).status, 200);
  const read = async () =>
    bench.kernel.ask(
      "select progress_message as message, progress_percent as percent from holdfast.execution_phases where attempt_id = $1 and name = 'source'",
      [begun.attempt],
    );
  assert.deepEqual(await read(), [{ message: "a b c", percent: 40 }]);
  await unchanged(() => say("/progress", { message: "a\u0007b\nc", percent: 40 }));
  assert.equal((await say("/progress", { message: "without" })).status, 200);
  assert.deepEqual(await read(), [{ message: "without", percent: null }]);
  await unchanged(async () => {
    for (const body of [
      { message: "" },
      { message: "m", percent: 101 },
      { message: "m", percent: 1.5 },
      { message: 1 },
      {},
      "x",
      "[]",
      '{"message":"a","message":"b"}',
    ]) {
      const answer = await say("/progress", body);
      assert.equal(answer.status, 400, JSON.stringify(body));
    }
    refused(await say("/progress", { message: "x".repeat(1001) }), 400, "invalid_request");
  });
});

test("E17: a message is as long as the contract says, whatever it is written in", async () => {
  const { say } = await speaker("source");
  for (const message of [
    "é".repeat(1000),
    "\u{1f600}".repeat(1000),
    "👩‍👩‍👧‍👦".repeat(1000),
    "e\u0301".repeat(1000),
  ]) {
    const answer = await say("/progress", { message });
    // Either it is taken or it is refused for good: an error that is tried again would be tried for ever.
    assert.ok(
      answer.status === 200 || answer.code === "invalid_request",
      `${message.slice(0, 8)}: ${answer.status}`,
    );
  }
  assert.equal((await say("/progress", { message: "\u{1f600}".repeat(1000) })).status, 200);
});

test("E17: a result is written once, equal content is success, other content a conflict, twice at once too", async () => {
  const { say } = await speaker("source");
  const result = { pages: "12", engine: { version: "1.4" }, list: [1, 2.5, null, true] };
  const answers = await Promise.all([say("/result", result), say("/result", result)]);
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200],
  );
  await unchanged(async () => {
    assert.equal(
      (await say("/result", { list: [1, 2.5, null, true], engine: { version: "1.4" }, pages: "12" })).status,
      200,
    );
    refused(await say("/result", { pages: "13" }), 409, "conflict");
    refused(
      await say("/result", { pages: "x".repeat(callbackLimits.resultBytesMax) }),
      413,
      "payload_too_large",
    );
    assert.equal((await say("/result", [1])).status, 400);
  });
});

test("E17: every result within the contract's bound can be stored, whatever it is made of", async () => {
  for (const result of [
    { a: Array.from({ length: 8000 }, () => 1) },
    { a: Array.from({ length: 5400 }, () => ({})) },
    Object.fromEntries(Array.from({ length: 1700 }, (_, n) => [n.toString(36), 1])),
    { a: "\u{1f600}".repeat(4000) },
    { a: "\\".repeat(8000) },
    JSON.parse('{"__proto__": {"a": 1}, "constructor": 2}') as Record<string, unknown>,
  ]) {
    const { say } = await speaker("source", { kinds: ["source"] });
    const answer = await say("/result", JSON.stringify(result));
    assert.equal(
      answer.status,
      200,
      `${JSON.stringify(result).slice(0, 40)}: ${JSON.stringify(answer.body)}`,
    );
    await unchanged(async () => assert.equal((await say("/result", JSON.stringify(result))).status, 200));
  }
});

test("E18: an object is promised, sent, completed and read by a later phase of the same attempt", async () => {
  const source = await speaker("source");
  await store(source, "tree.tar.gz", "the tree");
  await unchanged(() => source.say("/objects/tree.tar.gz/complete", content("the tree").promise));
  const compile = await speakerOf(source.begun, "compile");
  const { body } = await compile.say("/objects/source/tree.tar.gz/download", {});
  assert.deepEqual(
    [body["method"], body["bytes"], body["sha256"], body["media_type"]],
    ["GET", 8, content("the tree").promise.sha256, "application/octet-stream"],
  );
  const read = await transfer(body);
  assert.equal(read.bytes.toString(), "the tree");
});

test("E18: a promise stands: other content under the name is a conflict, the same again is a new capability", async () => {
  const { say } = await speaker("source");
  const { promise, bytes } = content("bytes");
  const path = "/objects/o/upload";
  const [one, other] = await Promise.all([say(path, promise), say(path, promise)]);
  assert.deepEqual([one.status, other.status], [200, 200]);
  await unchanged(async () => {
    refused(await say(path, content("other").promise), 409, "conflict");
    refused(await say(path, { ...promise, media_type: "text/plain" }), 409, "conflict");
    refused(await say("/objects/o/complete", content("other").promise), 409, "conflict");
    refused(await say("/objects/o/complete", promise), 422, "content_mismatch");
    refused(await say("/objects/p/complete", promise), 404, "not_found");
    refused(await say("/objects/source/o/download", {}), 404, "not_found");
    refused(await say(path, { ...promise, bytes: -1 }), 400, "invalid_request");
    refused(await say(path, { ...promise, bytes: 2 ** 53 }), 400, "invalid_json");
    refused(
      await say("/objects/big/upload", { ...promise, bytes: callbackLimits.objectBytesMax + 1 }),
      413,
      "payload_too_large",
    );
    refused(await say("/objects/..%2Fo/upload", promise), 404, "not_found");
  });
  assert.equal((await transfer(one.body, bytes)).status, 204);
  assert.equal((await transfer(other.body, bytes)).status, 204);
  assert.equal((await say("/objects/o/complete", promise)).status, 200);
});

test("E18: a capability is good for its one object, length, digest, method and time, and nothing else", async () => {
  const { say, begun, sandbox } = await speaker("source", { deadline: "5m" });
  const { promise, bytes } = content("12345");
  const { body } = await say("/objects/one/upload", promise);
  const url = String(body["url"]);
  assert.ok(Date.parse(String(body["expires_at"])) * 1000 <= Number(sandbox.deadline) + 1_000_000);
  for (const wrong of ["1234", "123456", "54321"]) {
    assert.ok((await transfer(body, Buffer.from(wrong))).status >= 400, wrong);
  }
  assert.ok((await transfer(body, undefined, { method: "GET" })).status >= 400);
  assert.ok((await transfer(body, undefined, { method: "DELETE" })).status >= 400);
  // The same signature for another object of the attempt, for another attempt's, or for a longer time.
  const { body: two } = await say("/objects/two/upload", content("1234!").promise);
  const ofOther = String(two["url"]);
  for (const forged of [
    url.replace("/one", "/two"),
    url.replace(begun.job, begun.job.replace(/.$/, "0")),
    url.replace(/(expires=|e=)(\d+)/, (_, name: string, at: string) => `${name}${BigInt(at) + 1n}`),
    ofOther,
  ]) {
    if (forged === url) continue;
    assert.ok((await transfer(body, bytes, { url: forged })).status >= 400, forged);
  }
  assert.equal((await transfer(body, bytes)).status, 204);
});

test("E18: what another attempt stored can't be had, and its token speaks for itself alone", async () => {
  const one = await speaker("source");
  await store(one, "secret.txt", "of one");
  const other = await speaker("source");
  await unchanged(async () => {
    refused(await other.say("/objects/source/secret.txt/download", {}), 404, "not_found");
    refused(await other.say("/objects/secret.txt/complete", content("of one").promise), 404, "not_found");
  });
  const { body } = await other.say("/objects/secret.txt/upload", content("of one").promise);
  const keys = await bench.kernel.ask<{ blob_key: string; attempt_id: string }>(
    "select blob_key, attempt_id from holdfast.attempt_objects where name = 'secret.txt'",
  );
  assert.equal(new Set(keys.map(({ blob_key }) => blob_key)).size, 2);
  assert.ok(String(body["url"]).includes(other.sandbox.id) || !String(body["url"]).includes(one.sandbox.id));
  // Nothing came into the first one's by this.
  await other.say("/pins", { pins });
  assert.deepEqual((await bench.look(one.begun.lease)).pins, {});
});

test("E18: a phase has a bounded number of objects", async () => {
  const { say, begun, sandbox } = await speaker("source");
  await bench.kernel.ask(
    `insert into holdfast.attempt_objects (tenant_id, attempt_id, phase, name, blob_key, bytes, sha256, media_type, sandbox_id)
     select $1, $2::uuid, 'source', 'o' || n, $2::text || n, 1, repeat('a', 64), 'text/plain', $3 from generate_series(2, $4::int) n`,
    [begun.lease.tenant, begun.attempt, sandbox.id, callbackLimits.objectsMax],
  );
  const answers = await Promise.all([
    say("/objects/last/upload", content("a").promise),
    say("/objects/more/upload", content("a").promise),
  ]);
  assert.deepEqual(
    answers.map(({ status }) => status).toSorted((a, b) => a - b),
    [200, 409],
  );
});

test("E20: an artifact is declared once, of a completed object of the publish phase", async () => {
  const publish = await speaker("publish");
  const { say } = publish;
  const files = [{ name: "index.html", bytes: 3, sha256: "a".repeat(64) }];
  await unchanged(async () => refused(await say("/artifact", { object: "site", files }), 404, "not_found"));
  await say("/objects/site/upload", content("site").promise);
  await unchanged(async () => refused(await say("/artifact", { object: "site", files }), 404, "not_found"));
  await store(publish, "site", "site");
  await store(publish, "other", "other");
  await unchanged(async () => {
    for (const name of ["/etc/passwd", "../x", "a//b", "a/./b", "a/", "a\\b", ""]) {
      refused(
        await say("/artifact", { object: "site", files: [{ ...files[0], name }] }),
        400,
        "invalid_request",
      );
    }
    refused(await say("/artifact", { object: "site", files: [...files, ...files] }), 400, "invalid_request");
  });
  const [one, two] = await Promise.all([
    say("/artifact", { object: "site", files }),
    say("/artifact", { object: "site", files }),
  ]);
  assert.deepEqual([one.status, two.status], [200, 200]);
  assert.deepEqual(one.body, { object: "site", ...content("site").promise });
  await unchanged(async () => {
    assert.equal((await say("/artifact", { object: "site", files })).status, 200);
    refused(await say("/artifact", { object: "other", files }), 409, "conflict");
    refused(await say("/artifact", { object: "site", files: [] }), 409, "conflict");
  });
});

test("E20: every manifest within the contract's bounds can be declared", async () => {
  for (const manifest of [
    { count: callbackLimits.manifestFilesMax, length: 100 },
    { count: callbackLimits.manifestFilesMax, length: 1 },
    { count: 1700, length: 490 },
  ]) {
    const publish = await speaker("publish");
    await store(publish, "site", "site");
    const files = Array.from({ length: manifest.count }, (_, n) => ({
      name: n.toString(36).padStart(manifest.length, "-"),
      bytes: n,
      sha256: "a".repeat(64),
    }));
    const body = JSON.stringify({ object: "site", files });
    assert.ok(Buffer.byteLength(body) <= callbackLimits.bodyBytesMax, String(Buffer.byteLength(body)));
    const answer = await publish.say("/artifact", body);
    assert.equal(
      answer.status,
      200,
      `${manifest.count} of ${manifest.length}: ${JSON.stringify(answer.body)}`,
    );
  }
});
