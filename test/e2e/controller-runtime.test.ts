import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { exitCodes } from "../../src/wire/exit-codes.ts";

describe("holdfast controller", () => {
  let folder: string;
  let common: Readonly<Record<string, string>>;

  before(() => {
    folder = mkdtempSync(join(tmpdir(), "hf-controller-"));
    const keys = join(folder, "keys");
    writeFileSync(keys, `first:${Buffer.alloc(32, 1).toString("base64")}\n`);
    common = {
      HOLDFAST_CALLBACK_KEYS_FILE: keys,
      HOLDFAST_INSTALLATION: "test",
      HOLDFAST_BLOB_DIRECTORY: folder,
      // It is not asked before all of that is right.
      HOLDFAST_DATABASE_URL: "postgres://nobody@127.0.0.1:1/none",
    };
  });
  after(() => rmSync(folder, { recursive: true }));

  /** As a pod's command, without anything of our own environment. */
  function run(words: readonly string[], environment: Readonly<Record<string, string>>) {
    const main = join(import.meta.dirname, "../../src/cli/main.ts");
    const { status, stderr } = spawnSync(process.execPath, [main, "controller", ...words], {
      env: { PATH: process.env["PATH"] ?? "", ...environment },
      encoding: "utf8",
      timeout: 60_000,
    });
    return { status, stderr };
  }

  test("G13: what a runtime lacks stops it at once, with one message that names the key", () => {
    const namespace = { HOLDFAST_KUBERNETES_NAMESPACE: "sandboxes" };
    for (const [words, environment, named] of [
      [["--runtime", "kubernetes"], common, /HOLDFAST_KUBERNETES_NAMESPACE is not set/],
      [[], { ...common, HOLDFAST_RUNTIME: "kubernetes" }, /HOLDFAST_KUBERNETES_NAMESPACE is not set/],
      [["--runtime", "kubernetes"], { ...common, ...namespace }, /HOLDFAST_KUBECONFIG is not set, and/],
      // The flag stands above the environment.
      [
        ["--runtime", "process"],
        { ...common, HOLDFAST_RUNTIME: "kubernetes" },
        /HOLDFAST_SANDBOX_DIRECTORY is/,
      ],
    ] as const) {
      const { status, stderr } = run(words, environment);
      assert.equal(status, exitCodes.usage, stderr);
      assert.match(stderr, named);
      assert.equal(stderr.match(/HOLDFAST_\w+ is not set/g)?.length, 1, stderr);
      assert.doesNotMatch(stderr, /\n\s+at /);
    }
  });

  test("a runtime that there is not is a mistake in the command", () => {
    const { status, stderr } = run(["--runtime", "docker"], common);
    assert.equal(status, exitCodes.usage);
    assert.match(stderr, /process, kubernetes/);
  });
});
