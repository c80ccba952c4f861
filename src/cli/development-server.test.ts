import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { runCommand, startCommand } from "../../test/support/run-command.ts";
import { scriptedGateway } from "../../test/support/scripted-gateway.ts";
import { until } from "../../test/support/until.ts";
import { processIdentity } from "../dev/directory-lock.mjs";

const job = `apiVersion: holdfast/v1
kind: Job
metadata: { name: site }
spec:
  phases:
    - { name: build, kind: compile, command: [make] }
`;

test("a job is followed to its end though the development server comes back on another port", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "holdfast-moved-"));
  t.after(() => rm(directory, { recursive: true }));
  await mkdir(join(directory, ".holdfast"));
  await writeFile(join(directory, "job.yaml"), job);
  const file = join(directory, ".holdfast", "dev.json");
  const runs = async (url: string, token: string) => {
    await writeFile(`${file}.new`, JSON.stringify({ url, token }), { mode: 0o600 });
    await rename(`${file}.new`, file);
  };
  const ends: (() => Promise<void>)[] = [];
  const before = await scriptedGateway({ after: (hook) => void ends.push(hook) }, { end: null });
  await runs(before.url, "hft_before");
  const command = startCommand(["run", "job.yaml"], { cwd: directory });
  t.after(() => void command.kill("SIGKILL"));
  let said = "";
  command.stdout.on("data", (text: string) => (said += text));
  command.stderr.on("data", (text: string) => (said += text));
  await until("it follows", () => said.includes("line 2"));
  for (const end of ends) await end();
  const after = await scriptedGateway(t);
  await runs(after.url, "hft_after");
  const [code] = await once(command, "close");
  assert.equal(code, 0, said);
  assert.match(said, /site succeeded/);
  assert.ok(after.seen.every(({ headers }) => headers.authorization === "Bearer hft_after"));
  assert.ok(
    after.seen.every(({ method }) => method === "GET"),
    "nothing was submitted again",
  );
});

test("what a server that was killed left behind is said to be that, and nothing is sent there", async (t) => {
  const directory = await mkdtemp(join(tmpdir(), "holdfast-gone-"));
  t.after(() => rm(directory, { recursive: true }));
  await mkdir(join(directory, ".holdfast"));
  const file = join(directory, ".holdfast", "dev.json");
  const stranger = await scriptedGateway(t);
  const left = (process: object) =>
    writeFile(file, JSON.stringify({ url: stranger.url, token: "hft_before", process }), { mode: 0o600 });
  // The pid lives again, but belongs to another process.
  await left({ pid: process.pid, identity: "0123456789abcdef" });
  const found = await runCommand(["get", "jobs"], { cwd: directory });
  assert.equal(found.code, 6);
  assert.match(
    found.stderr,
    new RegExp(`dev\\.json has ended without stopping: process ${process.pid} is gone`),
  );
  assert.match(found.stderr, /Start it again .+ or remove the file/);
  const named = await runCommand(["get", "jobs", "--url", stranger.url], { cwd: directory });
  assert.equal(named.code, 0, named.stderr);
  assert.deepEqual(
    stranger.seen.map(({ headers }) => headers.authorization),
    [undefined],
  );
  await left({ pid: process.pid, identity: processIdentity(process.pid) });
  const alive = await runCommand(["get", "jobs", "-o", "name"], { cwd: directory });
  assert.equal(alive.code, 0, alive.stderr);
});
