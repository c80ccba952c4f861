import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, test } from "node:test";
import { type AgentDesk, openAgentDesk } from "../../test/support/agent-desk.ts";
import { HoldfastError } from "../core/errors.ts";
import type { AgentMessage, AgentOutcome } from "../wire/agent-protocol.ts";
import { agentCommand } from "./agent-command.ts";
import { beginAgent, endAgent, readAgent } from "./agent-protocol.ts";
import type { BundleManifest } from "./bundle.ts";
import { inspectBundle } from "./bundle-read.ts";

/** An agent in one line of Node: `say`, `input` and `fs` are there. */
const agent = (source: string): string[] => [
  "run",
  "--retry-for",
  "1s",
  "--",
  process.execPath,
  "--input-type=module",
  "-e",
  `import fs from "node:fs";
   const say = (message) => console.log(JSON.stringify(message));
   const input = JSON.parse(fs.readFileSync(0, "utf8"));
   ${source}`,
];
const polite = (source: string, reply = "null") =>
  agent(`say({ type: "start", protocol: 1 }); ${source}; say({ type: "outcome", reply: ${reply} })`);

describe("a run of an agent", () => {
  let desk: AgentDesk;
  let directory: string;
  let said = "";
  let complained = "";
  let signal: (name: NodeJS.Signals) => void = () => undefined;
  const hooks: (() => void | Promise<void>)[] = [];

  const run = (argv: readonly string[], env: Readonly<Record<string, string>> = desk.env) =>
    agentCommand(argv, {
      env: { PATH: process.env["PATH"], ...env },
      directory,
      say: async (line) => void (said += line),
      complain: async (words) => void (complained += Buffer.from(words).toString()),
      signals(listener) {
        signal = listener;
        return () => undefined;
      },
      wait: async () => undefined,
    });
  const outcome = (): AgentOutcome => {
    const end = endAgent(readAgent(beginAgent, Buffer.from(said)).reading);
    assert.ok("type" in end, JSON.stringify(end));
    return end;
  };
  const messages = (): readonly AgentMessage[] => readAgent(beginAgent, Buffer.from(said)).messages;
  /** Runs, and makes the candidate the head, as a commit would. */
  const commit = async (argv: readonly string[]): Promise<BundleManifest | null> => {
    said = "";
    assert.equal(await run(argv), 0, complained);
    const { candidate } = outcome();
    if (candidate === null) return null;
    const content = desk.promised.at(-1);
    assert.equal(content?.sha256, candidate);
    assert.ok(content !== undefined);
    desk.head = content;
    const never = new AbortController().signal;
    return inspectBundle(await desk.blobs.read(`bundles/${candidate}`, content, never), content);
  };

  beforeEach(async () => {
    desk = await openAgentDesk({ after: (hook) => void hooks.push(hook) });
    directory = await mkdtemp(join(tmpdir(), "holdfast-run-"));
    said = complained = "";
  });
  afterEach(async () => {
    // Whatever happened, nothing of a run stays.
    assert.deepEqual(await readdir(directory), []);
    await rm(directory, { recursive: true });
    for (const hook of hooks.splice(0).toReversed()) await hook();
  });

  test("S13: what one run leaves in the folder is what the next one finds, and nothing else", async () => {
    const first = await commit(
      polite('fs.mkdirSync("a/b", { recursive: true }); fs.writeFileSync("a/b/c", "one")'),
    );
    assert.deepEqual(
      first?.files.map(({ path }) => path),
      ["a/b/c"],
    );
    const second = await commit(
      polite(
        'const found = fs.readFileSync("a/b/c", "utf8"); fs.writeFileSync("d", found + " two")',
        "{ found }",
      ),
    );
    assert.deepEqual(outcome().reply, { found: "one" });
    assert.deepEqual(
      second?.files.map(({ path, bytes }) => [path, bytes]),
      [
        ["a/b/c", 3],
        ["d", 7],
      ],
    );
  });

  test("an unchanged folder makes no candidate: the head stays as it is", async () => {
    assert.equal(await commit(polite("")), null);
    await commit(polite('fs.writeFileSync("a", "a")'));
    const before = desk.head;
    assert.equal(await commit(polite('fs.writeFileSync("a", "a"); fs.utimesSync("a", 1, 1)')), null);
    assert.equal(desk.head, before);
    assert.equal(desk.promised.length, 1);
  });

  test("the agent is told its stimulus and permissions on stdin, and never the token", async () => {
    desk.stimulus = { text: "hällo" };
    desk.permissions = ["notes.write"];
    await commit(polite("", "{ input, env: Object.keys(process.env) }"));
    const reply = outcome().reply as { readonly input: Record<string, unknown>; readonly env: string[] };
    assert.deepEqual(
      [reply.input["stimulus"], reply.input["permissions"], "bundle" in reply.input],
      [desk.stimulus, desk.permissions, false],
    );
    assert.ok(!reply.env.includes("HOLDFAST_TOKEN") && !reply.env.includes("HOLDFAST_CALLBACK_URL"));
  });

  test("events are passed on in order, before the outcome", async () => {
    await commit(polite('for (const n of [1, 2, 3]) say({ type: "event", name: "n", data: { n } })'));
    assert.deepEqual(
      messages().map((message) => (message.type === "event" ? message.data["n"] : message.type)),
      ["start", 1, 2, 3, "outcome"],
    );
  });

  test("a run that needs something first uploads nothing", async () => {
    const action = { type: "grant_permission", permission: "a", reason: "to do it" };
    await commit(
      agent(`fs.writeFileSync("half", "done"); say({ type: "start", protocol: 1 });
        say({ type: "outcome", required_action: ${JSON.stringify(action)} })`),
    );
    assert.deepEqual([outcome().required_action, outcome().candidate], [action, null]);
    assert.deepEqual(desk.promised, []);
  });

  const broken: readonly (readonly [string, string, number, RegExp])[] = [
    ["exits with a code", "process.exit(3)", 1, /ended with code 3/],
    ["is killed", 'process.kill(process.pid, "SIGKILL")', 1, /ended with SIGKILL/],
    ["says nothing", "", 7, /no_start/],
    ["has no outcome", 'say({ type: "start", protocol: 1 })', 7, /no_outcome/],
    [
      "fails after its outcome",
      'say({ type: "start", protocol: 1 }); say({ type: "outcome" }); process.exitCode = 1',
      1,
      /code 1/,
    ],
  ];
  for (const [what, source, code, words] of broken) {
    test(`an agent that ${what} may do better in another run`, async () => {
      assert.equal(await run(agent(source)), code);
      assert.match(complained, words);
      assert.doesNotMatch(said, /"outcome"|"failure"/);
      assert.deepEqual(desk.promised, []);
    });
  }

  const start = 'say({ type: "start", protocol: 1 })';
  const hopeless: readonly (readonly [string, string, string])[] = [
    ["not_json", "says something else", 'console.log("hello"); setInterval(() => {}, 1000)'],
    [
      "invalid_field",
      "names a candidate itself",
      `${start}; say({ type: "outcome", candidate: "${"a".repeat(64)}" })`,
    ],
    [
      "after_outcome",
      "goes on after its outcome",
      `${start}; say({ type: "outcome" }); say({ type: "event", name: "late" })`,
    ],
    [
      "mailbox_gone",
      "gives up",
      `${start}; say({ type: "failure", code: "mailbox_gone", message: "It was closed." })`,
    ],
    [
      "bundle_link",
      "leaves what can't be a bundle",
      `fs.symlinkSync("/etc/passwd", "link"); ${start}; say({ type: "outcome" })`,
    ],
  ];
  for (const [code, what, source] of hopeless) {
    test(`an agent that ${what} has failed for good: ${code}`, async () => {
      assert.equal(await run(agent(source)), 0);
      const end = endAgent(readAgent(beginAgent, Buffer.from(said)).reading);
      assert.equal("code" in end ? end.code : "outcome", code, said);
      assert.match(complained, new RegExp(code));
      assert.deepEqual(desk.promised, []);
    });
  }

  test("what the agent leaves running doesn't keep the run from ending", async () => {
    const sleeper = `import("node:child_process").then(({ spawn }) => spawn("sleep", ["20"], { stdio: "inherit" }).unref())`;
    const started = performance.now();
    await commit(polite(`await ${sleeper}`));
    assert.ok(performance.now() - started < 15_000);
  });

  test("stderr is passed on, bounded, so that the outcome is never lost to it", async () => {
    await commit(polite('process.stderr.write("x".repeat(6_000_000))'));
    assert.ok(complained.length > 4_000_000 && complained.length < 4_200_000);
    assert.match(complained, /the rest of stderr is not kept/);
  });

  test("a signal to the sandbox reaches the agent", async () => {
    const running = run(
      agent('process.on("SIGTERM", () => process.exit(9)); console.error("up"); setInterval(() => {}, 1000)'),
    );
    while (!complained.includes("up")) await new Promise((resolve) => setImmediate(resolve));
    signal("SIGTERM");
    assert.equal(await running, 1);
    assert.match(complained, /code 9/);
  });

  test("a head with other bytes than the promised ones is not unpacked", async () => {
    await commit(polite('fs.writeFileSync("a", "a")'));
    const { head } = desk;
    assert.ok(head !== null);
    desk.head = { ...head, sha256: "b".repeat(64) };
    assert.notEqual(await run(polite("")), 0);
    assert.doesNotMatch(said.slice(said.indexOf("\n", said.indexOf("outcome"))), /start/);
  });

  test("a fenced sandbox stops before the agent is started", async () => {
    desk.refusal = new HoldfastError("sandbox_fenced", "the activation is not running");
    assert.equal(await run(polite("")), 4);
    assert.equal(said, "");
  });

  test("wrong usage is told apart from everything else", async () => {
    for (const argv of [
      [],
      ["run"],
      ["run", "--"],
      ["walk", "--", "true"],
      ["run", "--retry-for", "x", "--", "true"],
      ["--nope"],
    ]) {
      assert.equal(await run(argv), 2, argv.join(" "));
    }
    assert.equal(await run(["run", "--", "true"], {}), 2);
    assert.equal(await run(["run", "--", "/no/such/program"]), 1);
    assert.match(complained, /can't be started/);
    complained = "";
    assert.equal(await run(["--help"]), 0);
    assert.match(complained, /holdfast-agent run -- node notes\.mjs/);
  });

  test("the program does all of it in a process of its own, with the notes example", async () => {
    const notes = join(import.meta.dirname, "../../examples/notes-agent/notes.mjs");
    const turn = async (words: string) => {
      desk.stimulus = { text: words };
      const program = join(import.meta.dirname, "../../bin/sandbox/holdfast-agent");
      const child = spawn(program, ["run", "--", process.execPath, notes], {
        cwd: directory,
        env: { ...desk.env, HOLDFAST_NODE: process.execPath, PATH: "/usr/bin:/bin" },
        stdio: ["ignore", "pipe", "inherit"],
      });
      const [output, [code]] = await Promise.all([
        text(child.stdout),
        once(child, "exit") as Promise<[number]>,
      ]);
      assert.equal(code, 0);
      said = output;
      const end = outcome();
      if (end.candidate !== null) desk.head = desk.promised.at(-1) ?? null;
      return end;
    };
    assert.deepEqual((await turn("add milk")).required_action, {
      type: "grant_permission",
      permission: "notes.write",
      reason: "I would write to your notes.",
    });
    assert.equal(desk.head, null);
    desk.permissions = ["notes.write"];
    assert.deepEqual((await turn("add milk")).reply, { text: "Kept as note 1." });
    assert.deepEqual((await turn("list")).reply, { text: "1. milk" });
  });
});
