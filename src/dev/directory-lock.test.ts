import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { type TestContext, test } from "node:test";
import { lockDirectory, processIdentity } from "./directory-lock.mjs";

const lockModule = new URL("directory-lock.mjs", import.meta.url).href;

function folder(t: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "holdfast-lock-"));
  t.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

/** A process that tries to take the lock, says whether it has it, and stays. */
async function contender(t: TestContext, directory: string, waitMs = 0) {
  const script = `
    const { lockDirectory } = await import(${JSON.stringify(lockModule)});
    const lock = await lockDirectory(${JSON.stringify(directory)}, { waitMs: ${waitMs} });
    console.log("heldBy" in lock ? "refused" : "held");
    setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  const [answer] = (await once(createInterface(child.stdout), "line")) as [string];
  return { child, answer };
}

test("of several that come at once one has the lock at most, and the others are refused", async (t) => {
  const directory = folder(t);
  const contenders = await Promise.all(Array.from({ length: 5 }, () => contender(t, directory)));
  assert.ok(contenders.filter(({ answer }) => answer === "held").length <= 1);
});

test("of several that wait one after the other gets it", async (t) => {
  const directory = folder(t);
  let holders = 0;
  const take = async () => {
    const lock = await lockDirectory(directory, { waitMs: 20_000 });
    assert.ok("release" in lock);
    assert.equal(++holders, 1);
    await new Promise(setImmediate);
    holders--;
    lock.release();
  };
  await Promise.all([take(), take(), take(), take()]);
  assert.deepEqual(readdirSync(directory), []);
});

test("a refusal names the holder; what a killed holder left is taken over", async (t) => {
  const directory = folder(t);
  const { child, answer } = await contender(t, directory);
  assert.equal(answer, "held");
  assert.deepEqual(await lockDirectory(directory), { heldBy: child.pid });

  child.kill("SIGKILL");
  await once(child, "exit");
  const lock = await lockDirectory(directory);
  assert.ok("release" in lock);
  lock.release();
  assert.deepEqual(readdirSync(directory), []);
});

test("a lock whose pid another process has now is nobody's", async (t) => {
  const directory = folder(t);
  writeFileSync(join(directory, `lock-${process.pid}-0123456789abcdef-00000000`), "");
  assert.ok("release" in (await lockDirectory(directory)));
});

test("a process is told from another one that had the same pid, and a dead one from a live one", async (t) => {
  const { child } = await contender(t, folder(t));
  assert.ok(child.pid);
  const identity = processIdentity(child.pid);
  assert.match(identity ?? "", /^[0-9a-f]{16}$/);
  assert.equal(processIdentity(child.pid), identity);
  child.kill("SIGKILL");
  await once(child, "exit");
  assert.equal(processIdentity(child.pid), null);
});
