import assert from "node:assert/strict";
import { test } from "node:test";
import type { AgentSpec } from "../../src/wire/agent.ts";
import { sessionsOf } from "../support/sessions.ts";
import { testStack } from "../support/stack.ts";

/** An agent that does itself what the wrapper does: `call` and `say` are there, and `zstd` of plain ustar. */
const plain = (source: string): Partial<AgentSpec> => ({
  command: [
    process.execPath,
    "--input-type=module",
    "-e",
    `import { createHash } from "node:crypto";
     import { zstdCompressSync, zstdDecompressSync } from "node:zlib";
     const say = (message) => console.log(JSON.stringify(message));
     const call = async (path, body) => {
       const response = await fetch(process.env.HOLDFAST_CALLBACK_URL + path, {
         method: "POST",
         headers: { authorization: "Bearer " + process.env.HOLDFAST_TOKEN, "content-type": "application/json" },
         body: JSON.stringify(body),
       });
       if (!response.ok) throw new Error(path + ": " + response.status + " " + (await response.text()));
       return response.json();
     };
     const entry = (name, type, body = "", link = "") => {
       const block = Buffer.alloc(512);
       block.write(name, 0); block.write("0000644\\0", 100); block.write("0000000\\0", 108); block.write("0000000\\0", 116);
       block.write(body.length.toString(8).padStart(11, "0") + "\\0", 124); block.write("00000000000\\0", 136);
       block.write("        ", 148); block.write(type, 156); block.write(link, 157); block.write("ustar\\u000000", 257);
       block.write(block.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, "0") + "\\0 ", 148);
       const padded = Buffer.alloc(Math.ceil(body.length / 512) * 512);
       padded.write(body);
       return Buffer.concat([block, padded]);
     };
     const send = async (...entries) => {
       const bytes = zstdCompressSync(Buffer.concat([...entries, Buffer.alloc(1024)]));
       const promise = { bytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") };
       const { method, url, headers } = await call("/agent/candidates", promise);
       const sent = await fetch(url, { method, headers, body: bytes });
       if (!sent.ok) throw new Error("not sent: " + sent.status);
       return promise.sha256;
     };
     const input = await call("/agent/input", {});
     say({ type: "start", protocol: 1 });
     ${source}`,
  ],
  timeout: "1m",
  grace: "1s",
});

test("S13 G9: an agent without the wrapper reads its input, sends its bundle, and finds it the next time", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation);
  const sessions = sessionsOf(foundation.db, stack.tenant);
  await sessions.agent(
    "plain",
    plain(`
      let before = "";
      if (input.bundle !== null) {
        const bytes = Buffer.from(await (await fetch(input.bundle.url, { headers: input.bundle.headers })).arrayBuffer());
        const tar = zstdDecompressSync(bytes);
        before = tar.subarray(512, 512 + parseInt(tar.subarray(124, 135).toString(), 8)).toString();
      }
      const text = before + input.stimulus.text;
      const candidate = await send(entry("heard.txt", "0", text));
      say({ type: "outcome", candidate, reply: { text, ordinal: input.ordinal, run: input.run, revision: input.revision } });`),
  );
  const session = await sessions.create("plain");
  const first = await sessions.tell(session, { text: "one" });
  const second = await sessions.tell(session, { text: "two" });
  assert.deepEqual((await sessions.reaches(session, first)).reply, {
    text: "one",
    ordinal: 1,
    run: 1,
    revision: 0,
  });
  assert.deepEqual((await sessions.reaches(session, second)).reply, {
    text: "onetwo",
    ordinal: 2,
    run: 1,
    revision: 1,
  });
});

test("S13: what no other run would mend fails at once with its code, and the head stays as it was", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation);
  const sessions = sessionsOf(foundation.db, stack.tenant);
  const cases: readonly (readonly [string, string])[] = [
    ["mailbox_gone", 'say({ type: "failure", code: "mailbox_gone", message: "It was closed." });'],
    ["unknown_field", 'say({ type: "outcome", candidate: null, note: "x" });'],
    ["after_outcome", 'say({ type: "outcome" }); say({ type: "event", name: "late" });'],
    ["bundle_link", 'say({ type: "outcome", candidate: await send(entry("a", "2", "", "/etc/passwd")) });'],
    ["bundle_path_unsafe", 'say({ type: "outcome", candidate: await send(entry("../a", "0", "x")) });'],
    [
      "bundle_duplicate_path",
      'say({ type: "outcome", candidate: await send(entry("a", "0"), entry("A", "0")) });',
    ],
  ];
  await Promise.all(
    cases.map(async ([code, source], index) => {
      await sessions.agent(`plain-${index}`, plain(source));
      const session = await sessions.create(`plain-${index}`);
      const turn = await sessions.tell(session, { text: code });
      const ended = await sessions.reaches(session, turn, ["failed"], 60_000);
      assert.deepEqual(
        [ended.failure_code, ended.tries, ended.revision],
        [code, 1, null],
        ended.failure_message ?? "",
      );
      assert.equal((await sessions.session(session)).head_revision, 0n);
    }),
  );
});

test("S13 S11: an agent that says what is no protocol and goes on is stopped at once, long before its time is over", async (t) => {
  const stack = await testStack(t);
  const foundation = await stack.foundation("controller");
  await stack.controller(foundation);
  const sessions = sessionsOf(foundation.db, stack.tenant);
  await sessions.agent("rambling", {
    command: ["sh", "-c", `echo '{"type":"start","protocol":1}'; echo 'and so on'; exec sleep 3600`],
    timeout: "50m",
    grace: "1s",
    tries: 3,
  });
  const session = await sessions.create("rambling");
  const told = await sessions.tell(session, { text: "talk" });
  const { failure_code, tries } = await sessions.reaches(session, told);
  assert.equal(failure_code, "not_json");
  assert.equal(tries, 1);
  const sandboxes = await stack.rows<{ stop_reason: string; stop_proof: string }>(
    "select stop_reason, stop_proof from holdfast.sandbox_attempts where owner_kind = 'activation'",
  );
  assert.deepEqual(
    sandboxes.map(({ stop_reason }) => stop_reason),
    ["fault"],
  );
});
