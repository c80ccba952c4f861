import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { resolve } from "node:path";
import { createInterface } from "node:readline";
import { type TestContext, test } from "node:test";
import { until } from "../../../test/support/until.ts";
import { processIdentity } from "../directory-lock.mjs";

const ownerScript = resolve(import.meta.dirname, "../../../test/fixtures/guard-owner.ts");

async function startOwner(t: TestContext, kind: string) {
  const owner = spawn(process.execPath, [ownerScript, kind], { stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => owner.kill("SIGKILL"));
  const [line] = (await once(createInterface(owner.stdout), "line")) as [string];
  const [program = 0, guard = 0] = line.split(" ").map(Number);
  assert.ok(program > 0 && guard > 0);
  const ends = () => until("the program ends", () => processIdentity(program) === null);
  return { owner, guard, ends };
}

for (const kind of process.platform === "linux" ? ["pipe", "death-signal"] : ["pipe"]) {
  test(`${kind}: SIGKILL of the owner ends the program`, async (t) => {
    const { owner, ends } = await startOwner(t, kind);
    owner.kill("SIGKILL");
    await ends();
  });

  test(`${kind}: SIGKILL of the guard ends the program`, async (t) => {
    const { guard, ends } = await startOwner(t, kind);
    process.kill(guard, "SIGKILL");
    await ends();
  });
}
