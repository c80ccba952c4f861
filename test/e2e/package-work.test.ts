import { mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { mustRunIn, root, stagePackage } from "../support/packed.ts";

const program = `import assert from "node:assert/strict";
import { createWorker, defineWork, openWork, planned, seconds, submit } from "holdfast/work";
import { startTestServer } from "holdfast/testing";

const server = await startTestServer({ tenants: ["acme"] });
try {
  const clock = await server.controlClock();
  const work = await openWork({ database: server.database, tenant: "acme" });
  const attempts: number[] = [];
  const charge = defineWork({
    name: "charge",
    version: "1",
    safety: "provider_keyed",
    policy: planned({ version: "p", offsets: [seconds(0), seconds(60)], circuit: seconds(120) }),
    run: (input: { readonly cents: number }, { attempt }) => {
      attempts.push(attempt);
      if (attempt === 1) throw new Error("not yet");
      return { charged: input.cents };
    },
  });
  await work.register(charge);
  const { id } = await submit(work, charge, { cents: 5 });
  // @ts-expect-error: the input's type is the definition's
  const wrong = () => submit(work, charge, { euros: 5 });
  void wrong;
  const worker = await createWorker(work, { works: [charge], concurrency: 2 });
  const until = async (done: () => Promise<boolean>) => {
    while (!(await done())) await new Promise((resolve) => setTimeout(resolve, 20));
  };
  await until(async () => attempts.length === 1);
  await until(async () => (await server.query<{ s: string }>("select work_state as s from holdfast.leases_work"))[0]?.s === "retry_wait");
  await clock.advance(seconds(60));
  work.wake();
  await until(async () => (await server.query("select 1 from holdfast.work_history")).length === 1);
  const [row] = await server.query<{ state: string; result: unknown }>("select state, result from holdfast.work_history where work_id = $1", [id]);
  assert.deepEqual(row, { state: "succeeded", result: { charged: 5 } });
  assert.deepEqual(attempts, [1, 2]);
  await worker.stop();
  await work.close();
} finally {
  await server.stop();
}
console.log("consumer ok");
`;

/** As somebody's program sees the built package, with the dependencies beside it. */
test("M7: a program with the packed package type-checks, and runs its Work on the pinned server under the controlled clock", () => {
  const project = mkdtempSync(join(tmpdir(), "hf-work-"));
  try {
    stagePackage(join(project, "node_modules/holdfast"));
    for (const name of readdirSync(join(root, "node_modules"))) {
      if (!name.startsWith(".") && name !== "holdfast")
        symlinkSync(join(root, "node_modules", name), join(project, "node_modules", name));
    }
    writeFileSync(join(project, "package.json"), JSON.stringify({ private: true, type: "module" }));
    writeFileSync(join(project, "program.ts"), program);
    const flags =
      "--strict --exactOptionalPropertyTypes --module nodenext --target es2024 --lib es2024,dom --types node --outDir out";
    mustRunIn(
      project,
      process.execPath,
      join(root, "node_modules/typescript/bin/tsc"),
      ...flags.split(" "),
      "program.ts",
    );
    const said = mustRunIn(project, process.execPath, "out/program.js");
    if (!said.includes("consumer ok")) throw new Error(said);
  } finally {
    rmSync(project, { recursive: true, force: true });
  }
});
