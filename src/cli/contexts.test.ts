import assert from "node:assert/strict";
import { chmod, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { runCommand } from "../../test/support/run-command.ts";
import { scriptedGateway } from "../../test/support/scripted-gateway.ts";

async function home(t: TestContext) {
  const directory = await mkdtemp(join(tmpdir(), "hf-contexts-"));
  t.after(() => rm(directory, { recursive: true, force: true }));
  const env = { XDG_CONFIG_HOME: directory };
  return {
    directory,
    path: join(directory, "holdfast", "contexts.json"),
    type: (words: string, more: Readonly<Record<string, string>> = {}) =>
      runCommand(words.split(" "), { env: { ...env, ...more }, cwd: directory }),
  };
}

describe("contexts", () => {
  test("name servers; the one in use is asked, with the token of its file and no other", async (t) => {
    const { directory, path, type } = await home(t);
    const first = await scriptedGateway(t);
    const second = await scriptedGateway(t);
    await writeFile(join(directory, "token"), "hft_second\n");
    const [firstUrl = "", secondUrl = ""] = [first, second].map(({ env }) => env["HOLDFAST_URL"]);
    assert.equal((await type(`context set one --url ${firstUrl}`)).code, 0);
    assert.equal((await type(`context set two --url ${secondUrl} --token-file token`)).code, 0);
    assert.equal((await stat(path)).mode & 0o777, 0o600);
    assert.doesNotMatch(await readFile(path, "utf8"), /hft_second/);

    assert.equal((await type("get jobs -o name")).code, 6, "none is in use yet");
    assert.equal((await type("context use two")).code, 0);
    assert.match(
      (await type("context list")).stdout,
      /^ +NAME +URL +TOKEN FILE\n +one .*\n\* +two .*token\n$/,
    );
    assert.equal((await type("get jobs -o name")).code, 0);
    assert.equal(second.seen[0]?.headers.authorization, "Bearer hft_second");
    await type("get jobs -o name --context one");
    await type("get jobs -o name", { HOLDFAST_CONTEXT: "one" });
    await type("get jobs -o name", { HOLDFAST_URL: firstUrl });
    assert.deepEqual(
      first.seen.map(({ headers }) => headers.authorization),
      [undefined, undefined, undefined],
    );

    assert.equal((await type("context delete two")).code, 0);
    assert.equal((await type("get jobs")).code, 6, "one that is forgotten is in use no more");
  });

  test("refuse what would send a token astray", async (t) => {
    const { path, type } = await home(t);
    const both = await type("get jobs --url http://127.0.0.1:1 --context one");
    assert.deepEqual([both.code, /keep one/.test(both.stderr)], [2, true]);
    assert.equal((await type("context set One --url http://127.0.0.1:1")).code, 2);
    assert.equal((await type("context set one --url ftp://x")).code, 2);
    await type("context set one --url http://127.0.0.1:1");
    const unknown = await type("get jobs --context two");
    assert.deepEqual([unknown.code, /There are: one\./.test(unknown.stderr)], [2, true]);
    await chmod(path, 0o666);
    assert.match(
      (await type("get jobs --context one")).stderr,
      /is not used: others own it or may write to it/,
    );
    await chmod(path, 0o600);
    await writeFile(path, '{"current":"gone","contexts":{}}');
    assert.match((await type("context list")).stderr, /is not valid: `current` names no context/);
  });
});
