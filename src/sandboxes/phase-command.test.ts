import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import type { ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { CallbackStub } from "../../test/support/callback-stub.ts";
import { phaseCommand, phaseUsage } from "./phase-command.ts";

describe("holdfast-phase", () => {
  let stub: CallbackStub;
  let folder: string;
  let said = "";
  const waits: number[] = [];
  const run = (argv: string[], env: Record<string, string> = stub.env()) =>
    phaseCommand(argv, {
      env,
      stdout: (text) => (said += text),
      stderr: (text) => (said += text),
      wait: async (ms) => void waits.push(ms),
    });
  const answer = (status: number, headers: Record<string, string> = {}) =>
    stub.faults.push((_, response: ServerResponse) => response.writeHead(status, headers).end("{}"));
  const hangUp = () => stub.faults.push((request) => request.destroy());

  beforeEach(async () => {
    stub = await CallbackStub.start();
    stub.sources = { engine: { repository: "e", ref: "main" }, module: { repository: "m", ref: "main" } };
    folder = await mkdtemp(join(tmpdir(), "holdfast-helper-"));
    said = "";
    waits.length = 0;
  });
  afterEach(async () => {
    await stub.close();
    await rm(folder, { recursive: true });
  });

  test("E17: pins, progress and results are reported, and reporting them again is success", async () => {
    const [engine, other] = ["a", "b"].map((digit) => digit.repeat(40));
    for (let times = 0; times < 2; times += 1) {
      assert.equal(await run(["pin", `engine=${engine}`, `module=${other}`]), 0);
      assert.equal(await run(["progress", "cloning", "--percent", "40"]), 0);
      assert.equal(await run(["result", "pages=12", "note=a=b"]), 0);
    }
    assert.deepEqual(Object.fromEntries(stub.pins), { engine, module: other });
    assert.deepEqual(stub.progress, ["cloning"]);
    assert.deepEqual(stub.results.get("source"), { pages: "12", note: "a=b" });
    assert.equal(await run(["pin", `engine=${other}`]), 4);
    assert.match(said, /409 conflict/);
  });

  test("E18: an object goes up in one phase and comes down in a later one, unchanged", async () => {
    const bytes = randomBytes(300_000);
    await writeFile(join(folder, "up"), bytes);
    assert.equal(
      await run(["upload", "tree.tar.gz", join(folder, "up"), "--media-type", "application/gzip"]),
      0,
    );
    assert.equal(stub.objects.get("source/tree.tar.gz")?.mediaType, "application/gzip");
    stub.phase = { name: "compile", kind: "compile" };
    assert.equal(await run(["download", "source", "tree.tar.gz", join(folder, "down")]), 0);
    assert.deepEqual(await readFile(join(folder, "down")), bytes);
    assert.match(said, /downloaded source\/tree\.tar\.gz 300000 bytes sha256:[0-9a-f]{64}\n$/);
    assert.deepEqual((await readdir(folder)).sort(), ["down", "up"]);
  });

  test("E18: other content under a promised name is refused; the same again is success", async () => {
    await writeFile(join(folder, "one"), "one");
    await writeFile(join(folder, "two"), "two");
    assert.equal(await run(["upload", "x", join(folder, "one")]), 0);
    assert.equal(await run(["upload", "x", join(folder, "one")]), 0);
    assert.equal(await run(["upload", "x", join(folder, "two")]), 4);
  });

  test("an empty file is an object too", async () => {
    await writeFile(join(folder, "empty"), "");
    assert.equal(await run(["upload", "empty", join(folder, "empty")]), 0);
    assert.equal(await run(["download", "source", "empty", join(folder, "again")]), 0);
    assert.equal((await readFile(join(folder, "again"))).length, 0);
  });

  test("E20: the artifact is declared with its manifest, in a publish phase only", async () => {
    await writeFile(join(folder, "site"), "site");
    await writeFile(join(folder, "manifest.json"), JSON.stringify({ files: [] }));
    const declare = ["artifact", "site", "--manifest", join(folder, "manifest.json")];
    assert.equal(await run(declare), 4);
    stub.phase = { name: "publish", kind: "publish" };
    assert.equal(await run(declare), 3, "not uploaded yet");
    assert.equal(await run(["upload", "site", join(folder, "site")]), 0);
    assert.equal(await run(declare), 0);
    assert.equal(await run(declare), 0);
    assert.deepEqual(stub.artifact, { object: "site", files: [] });
  });

  test("temporary failures are borne, with growing pauses, and Retry-After is kept to", async () => {
    hangUp();
    answer(500);
    answer(503, { "retry-after": "3" });
    answer(429);
    assert.equal(await run(["progress", "on"]), 0);
    assert.deepEqual(stub.progress, ["on"]);
    const [first = 0, second = 0, third = 0, fourth = 0] = waits;
    assert.ok(first >= 100 && first <= 200, `${first}`);
    assert.ok(second >= 200 && second <= 400, `${second}`);
    assert.equal(third, 3000);
    assert.ok(fourth >= 800 && fourth <= 1600, `${fourth}`);
  });

  test("temporary failures of the store are borne too, in both directions", async () => {
    await writeFile(join(folder, "up"), randomBytes(200_000));
    stub.faults.push(passOn, (request) => request.destroy());
    assert.equal(await run(["upload", "x", join(folder, "up")]), 0);
    stub.faults.push(passOn, (_, response) => {
      // Breaks off in the middle of the body.
      response
        .writeHead(200, { "content-length": "200000" })
        .write(Buffer.alloc(1000), () => response.destroy());
    });
    assert.equal(await run(["download", "source", "x", join(folder, "down")]), 0);
    assert.deepEqual(await readFile(join(folder, "down")), await readFile(join(folder, "up")));
  });

  /** The capability of the next call is given as usual. */
  const passOn = (...[request, response]: Parameters<CallbackStub["faults"][number]>) => {
    void stub.answer(request, response);
  };

  test("a capability that expired is replaced by a fresh one", async () => {
    await writeFile(join(folder, "up"), "bytes");
    stub.faults.push(passOn, (_, response) => response.writeHead(403).end());
    assert.equal(await run(["upload", "x", join(folder, "up")]), 0);
    const asked = stub.calls.filter((call) => call.endsWith("/objects/x/upload"));
    assert.equal(asked.length, 2);
  });

  test("E17: it stops at once when the server says so", async () => {
    for (const status of [401, 403, 409]) {
      answer(status);
      assert.equal(await run(["progress", "on"]), 4);
    }
    for (const status of [400, 404, 413, 422]) {
      answer(status);
      assert.equal(await run(["progress", "on"]), 3);
    }
    assert.deepEqual(waits, []);
    assert.equal(await run(["progress", "on"], { ...stub.env(), HOLDFAST_TOKEN: "other" }), 4);
  });

  test("it gives up when the server stays away, and says what the last failure was", async () => {
    answer(503);
    assert.equal(await run(["progress", "on", "--retry-for", "1ms"]), 5);
    assert.match(said, /gave up after 1 tries: status 503/);
    await stub.close();
    assert.equal(await run(["progress", "on", "--retry-for", "1ms"]), 5);
    assert.match(said, /ECONNREFUSED/);
  });

  test("E18: bytes that were not promised do not appear under the file's name", async () => {
    await writeFile(join(folder, "up"), "bytes");
    assert.equal(await run(["upload", "x", join(folder, "up")]), 0);
    stub.faults.push(passOn, (_, response) => response.writeHead(200).end("other"));
    assert.equal(await run(["download", "source", "x", join(folder, "down")]), 6);
    assert.deepEqual(await readdir(folder), ["up"]);
  });

  test("wrong usage is told from failure", async () => {
    const wrong = [
      [],
      ["nothing"],
      ["pin"],
      ["pin", "engine"],
      ["upload", "x"],
      ["progress", "a", "b"],
      ["--bad"],
    ];
    for (const argv of [...wrong, ["progress", "a", "--percent", "101"]]) {
      assert.equal(await run(argv), 2, argv.join(" "));
    }
    assert.equal(await run(["progress", "on"], {}), 2);
    assert.equal(await run(["upload", "x", join(folder, "none")]), 1);
    assert.equal(await run(["download", "source", "x", join(folder, "none", "x")]), 1);
    assert.deepEqual(stub.calls, []);
    said = "";
    assert.equal(await run(["--help"]), 0);
    assert.equal(said, phaseUsage);
  });
});
