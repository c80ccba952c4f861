import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { isHoldfastError } from "../../src/core/errors.ts";
import { microseconds } from "../../src/core/time.ts";
import { execPort, runCommand } from "../../src/runtimes/opensandbox/exec-daemon.ts";
import { type ExecEvent, ExecEventCutter } from "../../src/runtimes/opensandbox/exec-stream.ts";
import { assertNoProcessOf } from "../support/no-process.ts";
import { minute, never } from "../support/opensandbox/world.ts";
import { until } from "../support/until.ts";
import { command, openStand } from "./opensandbox-stand.ts";
import { collect, refused, stopped } from "./runtime.ts";

const { world, api } = await openStand();

const linesOf = async (uid: string, words: string, background = false): Promise<readonly string[]> => {
  const endpoint = await api().endpoint(uid, execPort, never);
  return collect(
    runCommand(endpoint, { command: words, background, timeoutMs: 5_000, silenceMs: 5_000 }, never),
  );
};

/** One test for each thing that the daemon in a sandbox does otherwise than one would think. */
describe("OpenSandbox, as its daemon behaves", () => {
  test("events are bare JSON between blank lines, in parts that end anywhere", () => {
    const frames = ['{"type":"init","text":"id"}', '{"type":"stdout","text":"grüße"}', '{"type":"ping"}'];
    const end =
      '{"type":"error","error":{"ename":"CommandExecError","evalue":"7","traceback":["exit status 7"]}}';
    for (const prefix of ["", "data: "]) {
      const bytes = Buffer.from([...frames, end].map((frame) => `${prefix}${frame}\n\n`).join(""));
      for (const size of [1, 2, 3, 1_000]) {
        const cutter = new ExecEventCutter();
        const events: ExecEvent[] = [];
        for (let at = 0; at < bytes.length; at += size)
          events.push(...cutter.push(bytes.subarray(at, at + size)));
        assert.deepEqual(
          events.map((event) => event.is),
          ["init", "stdout", "ping", "failed"],
        );
        assert.partialDeepStrictEqual(events[1], { text: "grüße" });
        assert.partialDeepStrictEqual(events[3], { exitCode: 7 });
      }
    }
  });

  test("an exit code is the value of an error", async () => {
    const ref = await world.held("exit 0");
    await assert.rejects(linesOf(ref.uid, "echo out; exit 3"), /failed: CommandExecError 3/);
    assert.deepEqual(await linesOf(ref.uid, "printf 'a\\n\\nb'"), ["a", "\n", "b"]);
  });

  test("a stream that was cut off before its end leaves the command open: it is asked again, and done once", async () => {
    const ref = await world.held("echo ran");
    world.fail("POST", command, { kind: "cut", at: "before completion" }, 2);
    await world.runtime.release(ref, 1n, minute, never);
    await stopped(world.runtime, ref);
    assert.equal(await world.output(ref), "ran\n");
  });

  test("one that was cut off after its end has ended", async () => {
    const ref = await world.held("exit 0");
    const before = world.count("POST", command);
    world.fail("POST", command, { kind: "cut", at: "after completion" });
    assert.equal(await world.state(ref), "held");
    assert.equal(world.count("POST", command), before + 1);
  });

  test("the completion of a background command says only that it was detached", async () => {
    const ref = await world.held("exit 0");
    await linesOf(ref.uid, "sleep 1000", true);
    const { daemon } = world.service.box(ref.uid);
    assert.ok(daemon.commandIds.length > 0);
    daemon.killAll();
    const released = await world.released("sleep 1000");
    assert.equal(await world.state(released), "running");
    await world.runtime.stop(released, 1n, never);
    await stopped(world.runtime, released);
  });

  test("E6: a release whose answer was lost, or whose caller left, released once", async () => {
    const ref = await world.held("echo ran");
    world.fail("POST", command, { kind: "lost" });
    await world.runtime.release(ref, 1n, minute, never);
    await stopped(world.runtime, ref);
    assert.equal(await world.output(ref), "ran\n");
  });

  test("E6 G5: a superseded controller's release that arrives late is refused by the guard, and starts nothing", async () => {
    const ref = await world.held("echo ran");
    const late = world.service.held.hold("received", 1, ({ verb }) => verb === "release");
    const releasing = assert.rejects(world.runtime.release(ref, 1n, minute, never), refused("superseded"));
    await late.reached;
    const other = world.another();
    await other.fence(ref, 2n, never);
    assert.equal(await late.go(), 200);
    await releasing;
    assert.partialDeepStrictEqual(await other.observe(ref, never), { state: "held", epoch: 2n });
    await other.release(ref, 2n, minute, never);
    await stopped(other, ref);
    assert.equal(await world.output(ref), "ran\n");
  });

  test("E6: a start that arrives late, after another controller's, starts nothing more", async () => {
    const ref = await world.held("echo ran");
    const late = world.service.held.hold("received", 1, ({ verb }) => verb === "run");
    const releasing = world.runtime.release(ref, 1n, minute, never);
    await late.reached;
    await stopped(world.another(), ref);
    await late.go();
    await releasing;
    assert.equal((await stopped(world.runtime, ref)).outcome.kind, "exited");
    assert.equal(await world.output(ref), "ran\n");
  });

  test("E6: what was released and not started, as its controller died, is started by whoever looks", async () => {
    const ref = await world.held("echo ran");
    const dies = new AbortController();
    world.service.fail({
      matches: ({ method, path }) => {
        const starts = method === "PATCH" && path.endsWith("/metadata");
        if (starts) dies.abort(new Error("its controller died"));
        return starts;
      },
      times: 1,
      does: { kind: "reset" },
    });
    await assert.rejects(world.runtime.release(ref, 1n, minute, dies.signal), /its controller died/);
    assert.equal((await stopped(world.another(), ref)).outcome.kind, "exited");
    assert.equal(await world.output(ref), "ran\n");
  });

  test("E19: a cursor counts bytes and may split a character: output comes back as it was written", async () => {
    const text = "grüße – 你好\n";
    const ref = await world.held("exit 0");
    const { daemon } = world.service.box(ref.uid);
    await linesOf(ref.uid, `printf '%s' '${text}'`, true);
    daemon.logBytesMax = 3;
    // What the daemon's own logs would give:
    const id = daemon.commandIds.at(-1) ?? "";
    let cursor = "0";
    const seen = await until("it gave all", async () => {
      let all = "";
      cursor = "0";
      for (let next = true; next; ) {
        const response = await fetch(
          `${world.service.url}/sandboxes/${ref.uid}/proxy/${execPort}/command/${id}/logs?cursor=${cursor}`,
        );
        const part = await response.text();
        const now = response.headers.get("EXECD-COMMANDS-TAIL-CURSOR") ?? "";
        next = now !== cursor;
        cursor = now;
        all += part;
      }
      return Number(cursor) === Buffer.byteLength(text) ? all : null;
    });
    assert.notEqual(seen, text);
    assert.ok(seen.includes("\u{fffd}"));
    const other = await world.released(
      `for i in 1 2 3; do printf '%s' '${text}'; printf '%s' '${text}' >&2; done`,
    );
    await stopped(world.runtime, other);
    const narrow = world.another({ logBytesMax: 21 });
    const records = await collect(narrow.logs(other, { cursor: null, follow: false }, never));
    assert.deepEqual(
      Buffer.concat(records.slice(0, -1).map(({ bytes }) => bytes)),
      Buffer.from(text.repeat(3)).subarray(0, 21),
    );
    assert.equal(await world.output(other), text.repeat(6));
  });

  test("E6, E10: a daemon that restarts forgets its commands: they go on, and their end is known", async () => {
    const ref = await world.running("until [ -e go ]; do sleep 0.05; done; echo last; exit 7");
    const { daemon } = world.service.box(ref.uid);
    const [id = ""] = daemon.commandIds;
    daemon.restart();
    const status = await fetch(
      `${world.service.url}/sandboxes/${ref.uid}/proxy/${execPort}/command/status/${id}`,
    );
    assert.equal(status.status, 400, "and not 404");
    assert.equal(await world.state(ref), "running");
    await world.runtime.release(ref, 1n, minute, never);
    await linesOf(ref.uid, `touch "$TMPDIR/.holdfast/${ref.uid}/work/go"`);
    const { outcome } = await stopped(world.another(), ref);
    assert.deepEqual([outcome.kind, outcome.exitCode], ["exited", 7]);
    assert.equal(await world.output(ref), "ready\nlast\n");
  });

  test("E6, E8: a daemon that takes its commands along leaves a loss, shown by looking, and nothing runs twice", async () => {
    const ref = await world.running("sleep 1000");
    world.service.box(ref.uid).daemon.restart({ kills: true });
    const seen = await stopped(world.runtime, ref);
    assert.equal(seen.outcome.kind, "lost");
    await assertNoProcessOf([ref.uid]);
    await world.runtime.release(ref, 1n, minute, never);
    assert.equal(await world.output(ref), "ready\n");
  });

  test("E6: a sandbox that lost its disk after it was released is unproven, and isn't started again", async () => {
    const request = world.request("echo ready; sleep 1000");
    const ref = await world.prepare(request);
    await world.runtime.release(ref, 1n, minute, never);
    await until("it runs", async () => (await world.output(ref)).includes("ready"));
    world.service.box(ref.uid).loseDisk();
    assert.equal(await world.state(ref), "unproven");
    await assert.rejects(world.runtime.release(ref, 1n, minute, never), refused("gone"));
    await assert.rejects(world.prepare({ ...request, epoch: 2n }), (error) => isHoldfastError(error));
    await assert.rejects(world.runtime.remove(ref, never), refused("invalid"));
    await api().remove(ref.uid, never);
  });

  test("E6: one that lost its disk while it was held never ran, and never will", async () => {
    const ref = await world.held("echo ran");
    world.service.box(ref.uid).loseDisk();
    await assert.rejects(world.runtime.release(ref, 1n, minute, never), refused("gone"));
    assert.equal((await stopped(world.runtime, ref)).outcome.kind, "never_started");
  });

  test("silence that is longer than the daemon's pings is a dead connection", async () => {
    const ref = await world.held("exit 0");
    const hasty = world.another({ limits: { silenceMs: 150 } });
    world.fail("POST", command, { kind: "slow", ms: 1_000 });
    assert.equal((await hasty.observe(ref, never)).state, "held");
  });

  test("pings keep a quiet command's connection open", async () => {
    const ref = await world.held("exit 0");
    const endpoint = await api().endpoint(ref.uid, execPort, never);
    const quiet = {
      command: "sleep 3.6; echo done",
      background: false,
      timeoutMs: 9_000,
      silenceMs: 3_400,
    };
    assert.deepEqual(await collect(runCommand(endpoint, quiet, never)), ["done"]);
  });

  test("E4: a limit that has passed before the command could begin starts nothing", async () => {
    const ref = await world.held("echo ran");
    world.fail("PATCH", /metadata$/, { kind: "reset" }, 4);
    await assert.rejects(world.runtime.release(ref, 1n, microseconds(100_000n), never));
    // Whoever looks before the limit has passed starts it. It counts from before this.
    await delay(110);
    const { outcome } = await stopped(world.runtime, ref);
    assert.equal(outcome.kind, "deadline");
    assert.equal(await world.output(ref), "");
  });
});
