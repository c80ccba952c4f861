import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chown, mkdtemp, readFile, rm } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { supportedSchema } from "../../src/core/schema/version.ts";
import { exitCodeOf, exitCodes } from "../../src/wire/exit-codes.ts";
import { runCommand } from "../support/run-command.ts";
import { lastArtifact, processesOf, start, startDev } from "../support/started.ts";
import { until } from "../support/until.ts";

/** An ordinary user that every machine has; null when we can't become it. */
const nobody =
  process.getuid?.() === 0 && spawnSync("setpriv", ["--version"]).status === 0 ? idsOf("nobody") : null;

function idsOf(user: string) {
  const [uid, gid] = ["-u", "-g"].map((flag) =>
    Number.parseInt(spawnSync("id", [flag, user], { encoding: "utf8" }).stdout, 10),
  );
  return uid === undefined || gid === undefined || Number.isNaN(uid) ? null : { uid, gid };
}

describe("npm start", { concurrency: false }, () => {
  const hooks: (() => void | Promise<void>)[] = [];
  const scope = { after: (hook: () => void | Promise<void>) => void hooks.unshift(hook) };
  const groups = new Set<number>();
  const folder = async () => {
    const path = await mkdtemp(join(tmpdir(), "hf-start-"));
    hooks.push(() => rm(path, { recursive: true, force: true, maxRetries: 5 }));
    return path;
  };
  const run = (...words: Parameters<typeof start> extends [unknown, ...infer Rest] ? Rest : never) => {
    const started = start(scope, ...words);
    groups.add(started.pid);
    return started;
  };
  const home = folder().then((path) => join(path, "store"));
  let digest = "";

  after(async () => {
    for (const hook of hooks) await hook();
  });

  test("--exit builds the example, ends with 0, and names the artifact in its last line", async () => {
    const { status, output } = await run(await home, ["--exit"]).ended;
    assert.equal(status, 0, output);
    const artifact = lastArtifact(output);
    const content = await readFile(artifact.path);
    assert.equal(content.length, artifact.bytes);
    digest = createHash("sha256").update(content).digest("hex");
    assert.equal(digest, artifact.sha256);
    assert.match(output, /^schema applied as holdfast_owner: /m);
    assert.ok(!existsSync(join(await home, "dev.json")), "nobody believes that a server is there");
  });

  test("Ctrl-C stops in order; the next start goes on with the same job, and builds the same bits", async () => {
    const directory = await home;
    const first = run(directory, ["--exit", "--step-ms", "300"]);
    const [, job] = await first.said(/^job (\S+) /m);
    await first.said(/^source \| ▸ fetching module/m);
    first.signal("SIGINT");
    const stopped = await first.ended;
    assert.equal(stopped.status, exitCodes.interrupted, stopped.output);
    assert.match(stopped.output, /Stopped\. `npm start` goes on where it was\.\n$/);
    assert.deepEqual((await processesOf(groups, directory)).filter(isOurs), []);
    assert.ok(!existsSync(join(directory, "dev.json")));

    const { status, output } = await run(directory, ["--exit"]).ended;
    assert.equal(status, 0, output);
    assert.match(output, new RegExp(`^schema ${supportedSchema.maximum} is in place$`, "m"));
    assert.equal(/^job (\S+) /m.exec(output)?.[1], job);
    assert.doesNotMatch(output, /attempt 2/);
    assert.deepEqual(lastArtifact(output), {
      path: join(directory, "artifacts", job ?? "", "site.tar.gz"),
      sha256: digest,
      bytes: lastArtifact(output).bytes,
    });
  });

  test("a port that is taken is said, with its exit code, and nothing is left running", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const { port } = taken.address() as AddressInfo;
    const { status, output } = await run(await home, ["--exit", "--port", String(port)]).ended;
    taken.close();
    assert.doesNotMatch(output, /PostgreSQL/, "before anything is started");
    assert.equal(status, exitCodeOf("port_taken"), output);
    assert.match(output, new RegExp(`error: .*${port}`));
    assert.match(output, /--port/);
  });

  test("without --exit it stays up and says address and token; a second start is refused with the pid", async () => {
    const directory = await home;
    const first = run(directory, []);
    const [, url = ""] = await first.said(/^Holdfast is up: {2}(http:\S+)$/m);
    const [, token = ""] = await first.said(/^token: +(\S+)$/m);
    const answer = await fetch(`${url}/v1/jobs`, { headers: { authorization: `Bearer ${token}` } });
    const { items } = (await answer.json()) as { items: { state: string }[] };
    // Built anew at each start that follows one that ended.
    assert.deepEqual(
      items.map((job) => job.state),
      ["succeeded", "succeeded", "succeeded"],
    );
    const second = await run(directory, ["--exit"]).ended;
    assert.equal(second.status, exitCodeOf("directory_in_use"), second.output);
    const [, pid] = /process (\d+) runs in/.exec(second.output) ?? [];
    const words = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
    if (process.platform === "linux") assert.match(words, /src\/cli\/main\.ts\0start/);
    first.signal("SIGTERM");
    const { status, output } = await first.ended;
    assert.equal(status, 0, output);
    assert.ok(!existsSync(join(directory, "dev.json")));
    await until("nothing is left", async () => (await processesOf(groups, directory)).length === 0);
  });

  test("after SIGKILL commands know that it is gone; the next start is found, and takes its address back", async () => {
    const path = await folder();
    const directory = join(path, ".holdfast");
    const jobs = () => runCommand(["get", "jobs"], { cwd: path });
    const up = async () => {
      const dev = startDev(scope, directory);
      groups.add(dev.pid);
      await dev.said(/^Holdfast is up/m);
      const { code, stderr } = await jobs();
      assert.equal(code, 0, stderr);
      return dev;
    };
    const killed = await up();
    killed.signal("SIGKILL");
    await killed.ended;
    const gone = await jobs();
    assert.equal(gone.code, exitCodes.unavailable);
    assert.match(gone.stderr, /has ended without stopping: process \d+ is gone/);
    const next = await up();
    next.signal("SIGINT");
    assert.equal((await next.ended).status, 0, next.output());
    const stopped = await jobs();
    assert.equal(stopped.code, exitCodes.unavailable);
    assert.match(stopped.stderr, /no server is configured/);
  });

  test("another user's store, in another place, builds the same bits", {
    skip: nobody === null,
  }, async () => {
    const path = await folder();
    const user = nobody ?? { uid: 0, gid: 0 };
    await chown(path, user.uid, user.gid);
    const directory = join(path, "store");
    const { status, output } = await run(directory, ["--exit"], { user }).ended;
    assert.equal(status, 0, output);
    assert.equal(lastArtifact(output).sha256, digest);
    await until("nothing is left", async () => (await processesOf(groups, directory)).length === 0);
  });
});

/** Not what a sandbox runs: that goes on until the next start. */
const isOurs = (line: string) => /postgres|cli\/main\.ts|bin\/run\.mjs/.test(line);
