import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import {
  type ExampleRepositories,
  exampleFolder,
  exampleJob,
  prepareRepositories,
} from "../../examples/engine-module/prepare.ts";
import { CallbackStub } from "../support/callback-stub.ts";

const run = promisify(execFile);
const helper = fileURLToPath(new URL("../../bin/holdfast-phase.mjs", import.meta.url));
/** Named by a variable: the phases are plain JavaScript, without types. */
const gitObject: string = "../../examples/engine-module/phases/git-object.mjs";
const never = new AbortController().signal;
const kinds = ["source", "compile", "publish"] as const;

describe("example: an engine and a module", () => {
  let base: string;
  let repositories: ExampleRepositories;
  let one: Awaited<ReturnType<typeof build>>;
  before(async () => {
    base = await mkdtemp(join(tmpdir(), "holdfast-example-"));
    repositories = await prepareRepositories(join(base, "repositories"));
    one = await build(repositories, join(base, "one"));
  });
  after(() => rm(base, { recursive: true }));

  /** One phase as the process runtime runs it: an empty folder, and no environment but the contract's. */
  async function phase(stub: CallbackStub, kind: (typeof kinds)[number], folder: string) {
    stub.phase = { name: kind, kind };
    await mkdir(folder, { recursive: true });
    const script = join(exampleFolder, "phases", `${kind}.mjs`);
    const { stdout } = await run(process.execPath, [script], {
      cwd: folder,
      env: {
        PATH: process.env["PATH"] ?? "",
        HOME: folder,
        ...stub.env(),
        HOLDFAST_NODE: process.execPath,
        HOLDFAST_PHASE_HELPER: helper,
        // The helper's TypeScript is compiled once and not in each of its forty runs.
        NODE_COMPILE_CACHE: join(base, "cache"),
      },
    });
    return stdout;
  }

  async function build(made: ExampleRepositories, folder: string) {
    const stub = await CallbackStub.start();
    try {
      stub.sources = {
        engine: { repository: made.engine.path, ref: "main" },
        module: { repository: made.module.path, ref: "main" },
      };
      const logs: string[] = [];
      for (const kind of kinds) logs.push(await phase(stub, kind, join(folder, kind)));
      const object = stub.objects.get("publish/site.tar.gz");
      assert.ok(object?.complete);
      const bytes = await buffer(await stub.blobs.read("publish/site.tar.gz", object.content, never));
      return { stub, bytes, sha256: object.content.sha256, log: logs.join("") };
    } finally {
      await stub.close();
    }
  }

  test("its repositories have the same commits wherever and whenever they are made", async () => {
    const saved = { ...process.env };
    process.env["GIT_AUTHOR_NAME"] = "Somebody";
    process.env["GIT_COMMITTER_DATE"] = "2001-01-01T00:00:00Z";
    process.env["GIT_CONFIG_COUNT"] = "1";
    process.env["GIT_CONFIG_KEY_0"] = "core.autocrlf";
    process.env["GIT_CONFIG_VALUE_0"] = "true";
    try {
      const again = await prepareRepositories(join(base, "elsewhere"));
      assert.equal(again.engine.commit, repositories.engine.commit);
      assert.equal(again.module.commit, repositories.module.commit);
      assert.deepEqual(await prepareRepositories(join(base, "elsewhere")), again);
    } finally {
      process.env = saved;
    }
    assert.deepEqual((await readdir(join(base, "elsewhere"))).sort(), ["engine.git", "module.git"]);
    await run("git", ["--git-dir", repositories.engine.path, "fsck", "--strict"]);
  });

  test("E9, E17: it reports both pins, builds what they pin, and the artifact is the same to the bit", async () => {
    const { engine, module } = repositories;
    assert.deepEqual(Object.fromEntries(one.stub.pins), { engine: engine.commit, module: module.commit });
    assert.match(one.log, new RegExp(`engine is exactly ${engine.commit}`));
    assert.equal(one.stub.progress.at(-1), "declaring the artifact");
    assert.deepEqual(one.stub.results.get("publish"), { pages: "11", links: "108" });

    const again = await build(
      await prepareRepositories(join(base, "other", "repositories")),
      join(base, "two"),
    );
    assert.equal(again.sha256, one.sha256);
    assert.deepEqual(again.bytes, one.bytes);
  });

  test("E20: the artifact's manifest lists exactly the files that are in it", async () => {
    const { stub, bytes } = one;
    await mkdir(join(base, "site"));
    await writeFile(join(base, "site.tar.gz"), bytes);
    await run("tar", ["-xzf", join(base, "site.tar.gz"), "-C", join(base, "site")]);
    const found = [];
    for (const entry of await readdir(join(base, "site"), { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const file = join(entry.parentPath, entry.name);
      const content = await readFile(file);
      const sha256 = createHash("sha256").update(content).digest("hex");
      found.push({ name: file.slice(join(base, "site").length + 1), bytes: content.length, sha256 });
    }
    const byName = (a: { name: string }, b: { name: string }) => (a.name < b.name ? -1 : 1);
    assert.deepEqual(
      (stub.artifact?.files as typeof found | undefined)?.toSorted(byName),
      found.sort(byName),
    );
    assert.ok(found.some(({ name }) => name === "index.html"));
    const pinned = JSON.parse(await readFile(join(base, "site", "build.json"), "utf8")) as unknown;
    assert.deepEqual(pinned, { sources: Object.fromEntries(stub.pins) });
  });

  test("E9: compile refuses trees that are not the pinned commits", async () => {
    const stub = await CallbackStub.start();
    try {
      stub.sources = { module: { repository: repositories.module.path, ref: "main" } };
      await phase(stub, "source", join(base, "four", "source"));
      stub.pins.set("module", "0".repeat(40));
      await assert.rejects(phase(stub, "compile", join(base, "four", "compile")), /is not the pinned 0{40}/);
    } finally {
      await stub.close();
    }
  });

  test("E9: the tree's id is git's own, also with links, programs and folders that sort unusually", async () => {
    const { treeId } = (await import(gitObject)) as {
      treeId: (folder: string) => Promise<string>;
    };
    const folder = join(base, "tree");
    await mkdir(join(folder, "a"), { recursive: true });
    for (const name of ["a/x", "a.b", "a-b", "ab", "ü"]) await writeFile(join(folder, name), name);
    await writeFile(join(folder, "run"), "", { mode: 0o755 });
    await symlink("a/x", join(folder, "link"));
    const git = (...words: string[]) =>
      run("git", ["--git-dir", join(base, "g"), "--work-tree", folder, ...words]);
    await git("init", "--quiet");
    await git("add", "--all");
    assert.equal(await treeId(folder), (await git("write-tree")).stdout.trim());
  });

  test("the job's placeholders are filled in after parsing", async () => {
    const job = await exampleJob({ repositories: '/a "b": c', stepMs: 20 });
    const { sources, phases } = job["spec"] as {
      sources: Record<string, { repository: string }>;
      phases: { command: string[]; env: object }[];
    };
    assert.equal(sources["engine"]?.repository, '/a "b": c/engine.git');
    assert.deepEqual(phases[0]?.command, ["node", join(exampleFolder, "phases", "source.mjs")]);
    assert.deepEqual(phases[0].env, { EXAMPLE_STEP_MS: "20" });
  });
});
