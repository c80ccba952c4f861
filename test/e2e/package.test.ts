import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { exitCodes } from "../../src/wire/exit-codes.ts";
import { mustRunIn, packInto, root, runIn, type Serving, serveIn } from "../support/packed.ts";

const job = `apiVersion: holdfast/v1
kind: Job
metadata: { name: packed }
spec:
  deadline: 5m
  attempts: 1
  sources:
    module: { repository: /nowhere/module.git, ref: main }
  phases:
    - name: source
      kind: source
      command: [/bin/sh, -ec, '"$HOLDFAST_NODE" "$HOLDFAST_PHASE_HELPER" pin module=0123456789abcdef0123456789abcdef01234567']
    - name: publish
      kind: publish
      command:
        - /bin/sh
        - -ec
        - |
          helper() { "$HOLDFAST_NODE" "$HOLDFAST_PHASE_HELPER" "$@"; }
          mkdir site; echo hello > site/index.html
          helper pack site site.tar.gz --manifest manifest.json
          helper upload site.tar.gz site.tar.gz
          helper artifact site.tar.gz --manifest manifest.json
`;

/** What somebody has who installs Holdfast: the tarball in an empty folder, no checkout, no install script. */
describe("the package", { concurrency: false }, () => {
  let folder = "";
  let project = "";
  let serving: Serving | undefined;
  const holdfast = (...words: string[]) =>
    runIn(project, join(project, "node_modules/.bin/holdfast"), ...words);

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "hf-package-"));
    const tarball = packInto(folder);
    project = await mkdtemp(join(tmpdir(), "hf-consumer-"));
    writeFileSync(join(project, "package.json"), JSON.stringify({ private: true, type: "module" }));
    const quietly = ["--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund"];
    mustRunIn(project, "npm", "install", ...quietly, tarball);
  });
  after(async () => {
    serving?.kill();
    for (const path of [folder, project]) await rm(path, { recursive: true, force: true, maxRetries: 5 });
  });

  test("has what it needs, and no sources, tests or examples", () => {
    const entries = readdirSync(join(project, "node_modules/holdfast"));
    assert.deepEqual(entries.sort(), [
      "LICENSE",
      "README.md",
      "bin",
      "dist",
      "docs",
      "migrations",
      "package.json",
    ]);
  });

  test("npx finds its program, which knows its version", () => {
    assert.match(mustRunIn(project, "npx", "holdfast", "--help"), /^Usage: holdfast /m);
    const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { version: string };
    assert.equal(holdfast("--version").output.trim(), version);
  });

  test("M3: prints the migrations and the roles that ship in it", () => {
    const script = holdfast("schema", "script");
    assert.equal(script.status, 0, script.output);
    const first = readdirSync(join(root, "migrations")).find((name) => name.startsWith("0001_"));
    const sql = readFileSync(join(root, "migrations", first ?? ""), "utf8");
    assert.ok(script.output.includes(sql.trim()), "the first migration is not in the script");
  });

  test("`start`, which builds a checkout's example, says that the package is without it", () => {
    const { status, output } = holdfast("start");
    assert.equal(status, exitCodes.usage);
    assert.match(output, /the package is without it\n.*`holdfast dev`/);
  });

  test("`dev` starts PostgreSQL and everything else, and a job runs to its artifact", async () => {
    serving = serveIn(project, join(project, "node_modules/.bin/holdfast"), "dev", "--port", "0");
    const [, page = ""] = await serving.said(/^console: +(http\S+\/console)$/m);
    const text = await (await fetch(page)).text();
    const script = /src="([^"]+)"/.exec(text)?.[1] ?? "";
    assert.equal((await fetch(new URL(script, page))).status, 200, text);
    writeFileSync(join(project, "job.yaml"), job);
    const run = holdfast("run", "job.yaml");
    assert.equal(run.status, 0, run.output);
    const [listed] = JSON.parse(holdfast("get", "jobs", "-o", "json").output).items as { id: string }[];
    const download = holdfast("download", listed?.id ?? "");
    assert.equal(download.status, 0, download.output);
    const digest = createHash("sha256")
      .update(readFileSync(join(project, "site.tar.gz")))
      .digest("hex");
    assert.ok(
      `${run.output}${download.output}`.includes(digest.slice(0, 12)),
      `${run.output}${download.output}`,
    );
    const { output } = await serving.interrupt();
    assert.match(output, /stopping/);
    assert.doesNotMatch(output, /error/i);
  });
});
