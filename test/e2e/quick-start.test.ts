import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { root, stagePackage } from "../support/packed.ts";
import { testStack } from "../support/stack.ts";

const page = await readFile(join(root, "docs/quick-start.md"), "utf8");

/** The page's blocks by the heading that they stand under, without the start of the server, which is here already. */
const blocks = page.split(/^## /m).flatMap((section) => {
  const [heading = ""] = section.split("\n", 1);
  return [...section.matchAll(/^```sh\n(.*?)^```$/gms)].flatMap(([, text = ""]) =>
    text === "npm start\n" ? [] : [{ heading, text }],
  );
});

/** What somebody types who reads docs/quick-start.md, in one shell and one folder. */
describe("docs/quick-start.md", { concurrency: false }, () => {
  const hooks: (() => void | Promise<void>)[] = [];
  let folder = "";
  let environment: Readonly<Record<string, string>> = {};

  before(async () => {
    const stack = await testStack({ after: (hook) => void hooks.unshift(hook) });
    const foundation = await stack.foundation("both");
    await stack.controller(foundation);
    const { gateway, token } = await stack.gateway(foundation, { scopes: ["*", "operator"], operator: true });
    folder = await mkdtemp(join(tmpdir(), "hf-quick-start-"));
    hooks.push(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }));
    // `npx holdfast` and `npm run build`, as they are in a clone.
    const bin = join(folder, "bin");
    await mkdir(bin);
    const shim = async (name: string, text: string) => {
      await writeFile(join(bin, name), `#!/bin/sh\n${text}\n`);
      await chmod(join(bin, name), 0o755);
    };
    await shim("npx", `shift; exec "${process.execPath}" "${join(root, "src/cli/main.ts")}" "$@"`);
    await shim("npm", `test "$*" = "run build"`);
    stagePackage(join(folder, "package"));
    await mkdir(join(folder, "node_modules"));
    await symlink(join(folder, "package"), join(folder, "node_modules/holdfast"));
    await symlink(join(root, "node_modules"), join(folder, "package/node_modules"));
    const path = [bin, dirname(process.execPath), process.env["PATH"] ?? ""].join(delimiter);
    environment = { PATH: path, HOLDFAST_URL: gateway.address, HOLDFAST_TOKEN: token };
  });
  after(async () => {
    for (const hook of hooks) await hook();
  });

  /** With the programs of another folder first, where one is given. */
  async function type(text: string, first = ""): Promise<string> {
    const env = { ...environment, PATH: [first, environment["PATH"]].filter(Boolean).join(delimiter) };
    const shell = spawn("sh", ["-eu"], { cwd: folder, env });
    let said = "";
    for (const stream of [shell.stdout, shell.stderr]) {
      stream.setEncoding("utf8").on("data", (part: string) => (said += part));
    }
    shell.stdin.end(text);
    await once(shell, "close");
    assert.equal(shell.exitCode, 0, `${text}\nended with ${shell.exitCode}:\n${said}`);
    return said;
  }

  /** All of a section in one shell: later blocks use the variables of earlier ones. */
  const section = (name: string): Promise<string> => {
    const texts = blocks.filter(({ heading }) => heading === name).map(({ text }) => text);
    assert.ok(texts.length > 0, `no block under ${name}`);
    return type(texts.join(""));
  };

  test("no block stands outside the sections that are run", () => {
    assert.deepEqual(
      [...new Set(blocks.map(({ heading }) => heading))],
      ["A job of your own", "An agent of your own", "Work of your own", "When something is wrong"],
    );
  });

  test("a job of your own", async () => {
    const said = await section("A job of your own");
    assert.match(said, /^hello succeeded/m);
    assert.match(said, /^check \| all good$/m);
    assert.match(said, /^Priority +2/m);
  });

  test("an agent of your own", async () => {
    const said = await section("An agent of your own");
    assert.match(said, /^I have heard 1 things\.$/m);
    assert.match(said, /^I have heard 2 things\.$/m);
    assert.match(said, /^ {2}2 .* committed as revision 2$/m);
  });

  test("work of your own", async () => {
    assert.equal(await section("Work of your own"), "Ada at attempt 2\nGrace at attempt 1\n");
  });

  test("M7: work of your own, on the oldest Node that the package names", async (t) => {
    const older = olderNode();
    if (older === undefined) return t.skip("no Node 20 or 21 on the PATH");
    const said = await type("node --version\nnode work.mjs", older);
    assert.match(said, /^v2[01]\.\S+\nAda at attempt 2\nGrace at attempt 1\n$/);
  });

  /** The folder of a Node on the PATH that is older than the one that runs the tests. */
  function olderNode(): string | undefined {
    const folders = (process.env["PATH"] ?? "").split(delimiter);
    return folders.find((at) => {
      const { stdout } = spawnSync(join(at, "node"), ["--version"], { encoding: "utf8" });
      return /^v2[01]\./.test(stdout ?? "");
    });
  }

  test("when something is wrong", async () => {
    assert.match(await section("When something is wrong"), /^idempotency_conflict: /);
  });
});
