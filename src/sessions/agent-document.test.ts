import assert from "node:assert/strict";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { openAgentDesk } from "../../test/support/agent-desk.ts";
import { agentProtocolLimits as limits } from "../wire/agent-protocol.ts";
import { agentCommand, agentUsage } from "./agent-command.ts";
import { agentFaults, beginAgent, endAgent, readAgent } from "./agent-protocol.ts";
import { bundleQuota, bundleReasons } from "./bundle.ts";

const page = await readFile(join(import.meta.dirname, "../../docs/reference/agent-protocol.md"), "utf8");
const section = (title: string) => page.split(/^## /m).find((text) => text.startsWith(`${title}\n`)) ?? "";

test("docs/reference/agent-protocol.md names every fault and every reason, and no other", () => {
  const listed = (text: string) =>
    [...text.matchAll(/^\| ([^|]*) \|/gm)].flatMap(([, cell = ""]) =>
      [...cell.matchAll(/`([a-z_]+)`/g)].map(([, code = ""]) => code),
    );
  assert.deepEqual(
    listed(section("Bundle")).toSorted(),
    bundleReasons.map((reason) => `bundle_${reason}`).toSorted(),
  );
  const beyond = [
    "agent_failed",
    "output_too_large",
    "candidate_missing",
    "deadline_exceeded",
    "out_of_memory",
  ];
  const ends = ["signaled", "evicted", "start_failed", "sandbox_lost"];
  assert.deepEqual(listed(section("Faults")).toSorted(), [...agentFaults, ...beyond, ...ends].toSorted());
});

test("docs/reference/agent-protocol.md has the bounds that are held", () => {
  const bounds: readonly (readonly [number, RegExp])[] = [
    [limits.lineBytesMax / 1000, /at most (\d+),000 bytes, all lines/],
    [limits.bytesMax / 2 ** 20, /all lines (\d+) MiB/],
    [limits.linesMax / 1000, /MiB and (\d+),000 lines/],
    [limits.depthMax, /at most (\d+) levels/],
    [limits.eventDataBytesMax / 1024, /an object of at most (\d+) KiB, `{}`/],
    [limits.replyBytesMax / 1024, /an object of at most (\d+) KiB, or null/],
    [bundleQuota.packedBytesMax / 2 ** 20, /At most (\d+) MiB compressed/],
    [bundleQuota.unpackedBytesMax / 2 ** 30, /(\d+) GiB uncompressed/],
    [bundleQuota.entriesMax / 1000, /(\d+),000 entries/],
    [bundleQuota.pathBytesMax, /at most (\d+) bytes, 32 parts/],
    [bundleQuota.depthMax, /255 bytes, (\d+) parts/],
  ];
  for (const [bound, pattern] of bounds)
    assert.equal(Number(pattern.exec(page)?.[1]), bound, String(pattern));
});

test("docs/reference/agent-protocol.md names every exit code of the wrapper", () => {
  const codes = agentUsage.slice(agentUsage.indexOf("Exit codes"));
  for (const [, code] of codes.matchAll(/(?:^| {2,3})(\d) [a-z]/gm)) {
    assert.match(section("With the wrapper"), new RegExp(`^\\|(?: \\d,)*[ ,\\d]*${code}[ ,\\d]* \\|`, "m"));
  }
});

test("the whole agent of docs/reference/agent-protocol.md is one", async () => {
  const desk = await openAgentDesk({ after });
  const directory = await mkdtemp(join(tmpdir(), "holdfast-document-"));
  after(() => rm(directory, { recursive: true }));
  const [, script = ""] = /```sh\n(#![\s\S]*?)```/.exec(page) ?? [];
  const file = join(directory, "agent.sh");
  await writeFile(file, script);
  await chmod(file, 0o755);
  for (const turns of [1, 2]) {
    let said = "";
    const code = await agentCommand(["run", "--", file], {
      env: { PATH: process.env["PATH"], ...desk.env },
      directory,
      say: async (line) => void (said += line),
      complain: async (text) => void process.stderr.write(text),
      signals: () => () => undefined,
    });
    assert.equal(code, 0);
    const end = endAgent(readAgent(beginAgent, Buffer.from(said)).reading);
    assert.deepEqual("reply" in end ? end.reply : end, { turns });
    desk.head = desk.promised.at(-1) ?? null;
  }
});
