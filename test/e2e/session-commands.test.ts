import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { after, before, describe, test } from "node:test";
import { notesAgent } from "../../examples/notes-agent/prepare.ts";
import { createClient } from "../../src/client/client.ts";
import { unpackBundle } from "../../src/sessions/bundle-unpack.ts";
import type { ActivationView } from "../../src/wire/activation.ts";
import type { SessionView } from "../../src/wire/session.ts";
import { type CommandResult, runCommand, startCommand } from "../support/run-command.ts";
import { testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

/** What a person types, against the whole system: a gateway, a controller and the notes agent as processes. */
describe("holdfast agent and session", { concurrency: false }, () => {
  const hooks: (() => void | Promise<void>)[] = [];
  let env: Readonly<Record<string, string>> = {};
  let directory = "";
  let session = "";
  const type = (...words: string[]): Promise<CommandResult> => runCommand(words, { env, cwd: directory });
  const told = async (...words: string[]): Promise<string> => {
    const { code, stdout, stderr } = await type(...words);
    assert.equal(code, 0, `${words.join(" ")}: ${stderr}`);
    return stdout;
  };

  before(async () => {
    const stack = await testStack({ after: (hook) => void hooks.unshift(hook) });
    const foundation = await stack.foundation("both");
    await stack.controller(foundation);
    const { gateway, token } = await stack.gateway(foundation, { scopes: ["*"] });
    env = { HOLDFAST_URL: gateway.address, HOLDFAST_TOKEN: token };
    directory = await mkdtemp(join(tmpdir(), "hf-commands-"));
    hooks.push(() => rm(directory, { recursive: true, force: true }));
    const { spec, ...agent } = (await notesAgent()) as { spec: { command: string[] } };
    // The Node that runs the tests need not be on the path of the sandboxes.
    const command = spec.command.map((word) => (word === "node" ? process.execPath : word));
    await writeFile(join(directory, "agent.yaml"), JSON.stringify({ ...agent, spec: { ...spec, command } }));
  });
  after(async () => {
    for (const hook of hooks) await hook();
  });

  test("apply makes an agent, brings it to what the file says, and changes nothing the third time", async () => {
    assert.equal(await told("agent", "apply", "agent.yaml"), "agent notes created, version 1\n");
    assert.equal(await told("agent", "apply", "agent.yaml"), "agent notes unchanged, version 1\n");
    const file = JSON.parse(await readFile(join(directory, "agent.yaml"), "utf8")) as { spec: object };
    const changed = { ...file, spec: { ...file.spec, tries: 2 } };
    await writeFile(join(directory, "changed.yaml"), JSON.stringify(changed));
    assert.equal(await told("agent", "apply", "changed.yaml"), "agent notes changed, version 2\n");
    assert.match(await told("get", "agents"), /^NAME +VERSION .*\nnotes +2 /);
    const { items } = JSON.parse(await told("get", "agents", "-o", "json")) as { items: { name: string }[] };
    assert.deepEqual(
      items.map(({ name }) => name),
      ["notes"],
    );
    await writeFile(
      join(directory, "wrong.yaml"),
      "apiVersion: holdfast/v1\nkind: Agent\nmetadata: { name: x }\nspec: { comand: [true] }\n",
    );
    const wrong = await type("agent", "apply", "wrong.yaml");
    assert.equal(wrong.code, 2);
    assert.match(wrong.stderr, /wrong\.yaml:4:9: unknown field `comand`; did you mean `command`\?/);
    assert.equal((await type("get", "agents", "nobody")).code, 3);
  });

  test("a turn is followed to its reply; one that needs somebody ends with 12 and says what to type", async () => {
    session = (await told("session", "start", "notes", "--label", "who=me")).trim();
    const asked = await type("session", "send", session, "add", "milk");
    assert.deepEqual([asked.code, asked.stdout], [12, '· notes.understood {"command":"add"}\n']);
    assert.match(
      asked.stderr,
      /needs notes\.write: I would write to your notes\.\n {2}grant it: .* session grant \S+ notes\.write\n/,
    );
    assert.match(await told("session", "grant", session, "notes.write"), /may now: notes\.write\n$/);
    const list = await told("session", "send", session.slice(0, 13), "list");
    assert.equal(list, '· notes.understood {"command":"list"}\n1. milk\n');
    const lines = (await told("session", "send", session, "--json", '{"text":"add bread"}', "-o", "json"))
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as { type: string; activation?: ActivationView });
    assert.deepEqual(
      lines.map((line) => line.type),
      ["activation", "event", "event", "event", "result"],
    );
    assert.deepEqual(lines.at(-1)?.activation?.reply, { text: "Kept as note 2." });
  });

  test("the same id and words are one turn, told again when it is over", async () => {
    const id = "0f0e0d0c-0b0a-4908-8706-050403020100";
    const first = await told("session", "send", session, "--id", id, "find bread");
    assert.match(first, /\n2\. bread\n$/);
    assert.equal(await told("session", "send", session, "--id", id, "find bread"), "2. bread\n");
    const other = await type("session", "send", session, "--id", id, "something else");
    assert.equal(other.code, 5);
  });

  test("history has every turn in order, for people and for programs", async () => {
    const text = await told("session", "history", session);
    assert.match(
      text,
      /^1 {2}\S+ \S+ {2}committed as revision 1\n {2}> add milk\n {2}< Kept as note 1\.\n2 /,
    );
    const described = await told("describe", "session", session);
    assert.match(
      described,
      /^State +idle: nothing is asked of it and nothing is held for it; revision 4 is committed$/m,
    );
    assert.match(described, /^Permissions +notes\.write$/m);
    assert.match(described, /^Turns, newest first\n {2}4 .* committed as revision 4\n {2}3 /m);
    assert.match(await told("describe", "agent", "notes"), /^Version +2 of its template/m);
    const { items } = JSON.parse(await told("session", "history", session, "--last", "2", "-o", "json")) as {
      items: ActivationView[];
    };
    assert.deepEqual(
      items.map(({ ordinal, stimulus }) => [ordinal, stimulus["text"]]),
      [
        [3, "add bread"],
        [4, "find bread"],
      ],
    );
  });

  test("a copy has what was committed then, and goes on by itself", async () => {
    const copy = (await told("session", "fork", session, "--revision", "1")).trim();
    assert.match(await told("session", "send", copy, "list"), /\n1\. milk\n$/);
    const { items } = JSON.parse(await told("get", "sessions", "--agent", "notes", "-o", "json")) as {
      items: SessionView[];
    };
    assert.deepEqual(
      items.map(({ id }) => id),
      [copy, session],
    );
  });

  test("download writes the verified bundle, and replaces no file unless it is told to", async () => {
    const said = await told("session", "download", session, "--revision", "3", "-O", "notes.tar.zst");
    const [, bytes, sha256 = ""] = /revision 3 (\d+) bytes sha256:([0-9a-f]{64})\n$/.exec(said) ?? [];
    const content = await readFile(join(directory, "notes.tar.zst"));
    assert.equal(content.length, Number(bytes));
    const folder = join(directory, "unpacked");
    await unpackBundle(Readable.from([content]), { bytes: BigInt(content.length), sha256 }, folder);
    assert.equal(await readFile(join(folder, "notes/2.txt"), "utf8"), "bread");
    assert.equal((await type("session", "download", session, "-O", "notes.tar.zst")).code, 2);
  });

  test("a suspended session lets turns wait; those that wait are cancelled with 8 where they are followed", async () => {
    assert.match(await told("session", "set", session, "--state", "suspended"), /is to be suspended/);
    const id = (await told("session", "send", session, "--detach", "add eggs")).trim();
    const following = type("session", "send", session, "--id", id, "add eggs");
    assert.match(
      await told("session", "cancel", session, "--reason", "no eggs"),
      /was cancelled: no eggs\n$/,
    );
    const followed = await following;
    assert.equal(followed.code, 8, followed.stderr);
    assert.match(
      await told("session", "set", session, "--state", "active", "--agent-version", "1"),
      /active/,
    );
    assert.equal((await type("session", "cancel", session)).stderr, "no turn of the session is unfinished\n");
  });

  test("S14: watch goes on after a cursor with all that happened to the session", async () => {
    const client = createClient({ url: env["HOLDFAST_URL"] ?? "", token: env["HOLDFAST_TOKEN"] });
    const { cursor } = await client.listActivations(session, { limit: 1 }).page();
    await told("session", "set", session, "--label", "seen=yes");
    const watching = startCommand(["session", "watch", session, "--after", cursor], { env, cwd: directory });
    let seen = "";
    watching.stdout.on("data", (text: string) => (seen += text));
    await until("the change is shown", () => seen.includes("\n"));
    watching.kill();
    assert.match(seen, new RegExp(`^\\S+ {2}session/${session} {2}session\\.patched {2}version \\d+\n`));
    assert.equal((await type("session", "watch", session, "--after", "nonsense")).code, 2);
  });

  test("a deleted session is gone for good, and an agent without sessions can go", async () => {
    assert.equal((await type("agent", "delete", "notes")).code, 5);
    assert.match(await told("session", "delete", session), /is being deleted\n$/);
    assert.equal((await type("session", "send", session, "hello")).code, 5);
  });

  test("wrong usage is told apart: 2, with what to write", async () => {
    const wrong = [
      ["session", "send", session],
      ["session", "send", session, "--json", "[]"],
      ["session", "send", session, "--json", "{}", "words"],
      ["session", "send", session, "--json", '{"a":1,"a":2}'],
      ["session", "send", session, "-"],
      ["session", "send", "xyz", "hello"],
      ["session", "set", session],
      ["get", "sessions", "--state", "odd"],
      ["session", "nothing"],
    ];
    const codes = await Promise.all(wrong.map(async (words) => (await type(...words)).code));
    assert.deepEqual(
      codes,
      wrong.map(() => 2),
    );
    const input = Buffer.from([0x61, 0xff]);
    const { code, stderr: said } = await runCommand(["session", "send", session, "-"], { env, input });
    assert.deepEqual([code, /standard input is not UTF-8/.test(said)], [2, true]);
    for (const words of [["agent"], ["session"], ["session", "send"], ["agent", "apply"]]) {
      const { stdout, stderr } = await type(...words, "--help");
      assert.match(stdout + stderr, /Usage: /, words.join(" "));
    }
  });
});
