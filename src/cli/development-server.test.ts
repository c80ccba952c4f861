import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { startCommand } from "../../test/support/run-command.ts";
import { scriptedGateway } from "../../test/support/scripted-gateway.ts";
import { until } from "../../test/support/until.ts";

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
