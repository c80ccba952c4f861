import assert from "node:assert/strict";
import { after, afterEach, before, describe, test } from "node:test";
import { isHoldfastError } from "../../src/core/errors.ts";
import { microseconds, seconds } from "../../src/core/time.ts";
import { execPort, runCommand } from "../../src/runtimes/opensandbox/exec-daemon.ts";
import { type ExecEvent, ExecEventCutter } from "../../src/runtimes/opensandbox/exec-stream.ts";
import { LifecycleApi } from "../../src/runtimes/opensandbox/lifecycle.ts";
import { defaultLimits } from "../../src/runtimes/opensandbox/opensandbox-runtime.ts";
import { isServiceError, readErrorBody } from "../../src/runtimes/opensandbox/service-error.ts";
import { readProcesses } from "../../src/runtimes/process/process-table.ts";
import { assertNoProcessOf } from "../support/no-process.ts";
import { minute, never, OpenSandboxWorld } from "../support/opensandbox/world.ts";
import { until } from "../support/until.ts";
import { collect, refused, stopped, sweep } from "./runtime.ts";

const sandboxes = /^\/sandboxes$/;
const one = /^\/sandboxes\/[^/]+$/;
const command = /\/proxy\/44772\/command$/;

const runsNow = async (uid: string): Promise<boolean> =>
  (await readProcesses()).some(({ marks }) => marks.includes(`HOLDFAST_SANDBOX=${uid}`));

/** One test for each thing that the service or its daemon does otherwise than one would think. */
describe("OpenSandbox, as its service and its daemon behave", () => {
  let world: OpenSandboxWorld;

  before(async () => {
    world = await OpenSandboxWorld.open();
  });
  afterEach(() => {
    world.service.heal();
    world.service.apiKey = null;
    world.service.daemonToken = null;
  });
  after(async () => {
    try {
      await sweep(world.runtime);
      assert.equal(world.service.boxes.size, 0);
    } finally {
      await world.close();
    }
  });

  const api = (url = world.service.url, apiKey: string | null = null) =>
    new LifecycleApi({ url, apiKey, useServerProxy: true }, { ...defaultLimits, firstDelayMs: 5 });
  const linesOf = async (uid: string, words: string, background = false): Promise<readonly string[]> => {
    const endpoint = await api().endpoint(uid, execPort, never);
    return collect(
      runCommand(endpoint, { command: words, background, timeoutMs: 5_000, silenceMs: 5_000 }, never),
    );
  };

  describe("transport and errors", () => {
    test("the address may end in /v1 or not, and the key is sent in its own header", async () => {
      world.service.apiKey = "right";
      for (const url of [world.service.url, `${world.service.url}/`, `${world.service.url}/v1`]) {
        assert.deepEqual(await api(url, "right").list("holdfast.dev/name", "none", never), []);
      }
    });

    test("a key that is missing or wrong is told by its code, and not tried again", async () => {
      world.service.apiKey = "right";
      const before = world.service.requests.length;
      for (const [key, code] of [
        [null, "MISSING_API_KEY"],
        ["wrong", "INVALID_API_KEY"],
      ] as const) {
        await assert.rejects(
          api(undefined, key).get("x", never),
          (error) => isServiceError(error, 401) && error.code === code,
        );
      }
      assert.equal(world.service.requests.length, before + 2);
    });

    test("the path to a daemon asks for no key, so each daemon has a token that comes with its endpoint", async () => {
      world.service.daemonToken = "token";
      const ref = await world.held("exit 0");
      assert.equal(await world.state(ref), "held");
      world.service.box(ref.uid).daemon.token = "another";
      const seen = await world.another().observe(ref, never);
      assert.equal(seen.state, "held", "the token that the service tells is the one that is sent");
      const stale = await world.runtime.observe(ref, never);
      assert.ok(stale.state === "unproven" && /401 Unauthorized/.test(stale.reason), stale.state);
      assert.equal(await world.state(ref), "held", "after a refusal it asks for the endpoint again");
    });

    test("errors come in three shapes, and as plain text from a proxy", () => {
      const bodies = [
        [
          '{"code":"KUBERNETES::SANDBOX_NOT_FOUND","message":"gone"}',
          "KUBERNETES::SANDBOX_NOT_FOUND",
          "gone",
        ],
        ['{"detail":[{"loc":["body","timeout"],"msg":"too short"}]}', "", "body.timeout too short"],
        [
          '{"detail":{"code":"SANDBOX::INVALID_PARAMETER","message":"no"}}',
          "SANDBOX::INVALID_PARAMETER",
          "no",
        ],
        ['{"error":"Unauthorized"}', "", "Unauthorized"],
        ["Bad Gateway", "", "Bad Gateway"],
      ] as const;
      for (const [body, code, message] of bodies) assert.deepEqual(readErrorBody(body), { code, message });
    });

    test("a schema's failure is 422 and not 400: such a spec is refused for good", async () => {
      world.fail("POST", sandboxes, {
        kind: "status",
        code: 422,
        body: { detail: [{ loc: ["body"], msg: "no" }] },
      });
      await assert.rejects(world.held("exit 0"), refused("invalid"));
    });

    test("too many requests and failures that pass are borne where asking twice is safe", async () => {
      const ref = await world.held("exit 0");
      world.fail("GET", one, { kind: "status", code: 429, retryAfter: 0 });
      world.fail("GET", one, { kind: "status", code: 503 });
      world.fail("POST", command, { kind: "reset" });
      assert.equal(await world.state(ref), "held");
      world.fail("GET", one, { kind: "reset" }, 100);
      assert.equal(await world.state(ref), "unproven");
    });

    test("an answer that doesn't come is given up in its time", async () => {
      const ref = await world.held("exit 0");
      const hasty = world.another({ limits: { requestMs: 100, attemptsMax: 2 } });
      world.fail("GET", one, { kind: "slow", ms: 2_000 }, 2);
      const seen = await hasty.observe(ref, never);
      assert.ok(seen.state === "unproven");
    });
  });

  describe("creates", () => {
    test("a create is sent as the schema wants it: entrypoint, limits, a life of 60 s at least", async () => {
      const hasty = world.another({
        sandboxes: { image: "registry.test/shell:1", lingerMs: 0, egress: ["example.org"] },
      });
      await world.prepare(world.request("exit 0", { holdLimit: seconds(1) }), hasty);
      const sent = world.service.requests.findLast(
        ({ method, path }) => method === "POST" && sandboxes.test(path),
      );
      const body = JSON.parse(sent?.body ?? "") as Record<string, unknown>;
      assert.partialDeepStrictEqual(body, {
        image: { uri: "registry.test/shell:1" },
        resourceLimits: { cpu: "100m", memory: "64Mi" },
        timeout: 60,
        networkPolicy: { defaultAction: "deny", egress: [{ action: "allow", target: "example.org" }] },
      });
    });

    test("E7: a create that took effect and whose answer was lost is found again by metadata, and sent once", async () => {
      const before = world.count("POST", sandboxes);
      world.fail("POST", sandboxes, { kind: "lost" });
      const request = world.request("exit 0");
      const ref = await world.prepare(request);
      assert.deepEqual(world.named(request.name), [ref.uid]);
      assert.equal(world.count("POST", sandboxes), before + 1);
    });

    test("E7: a create that was given up before its answer came is found again as well", async () => {
      const hasty = world.another({ limits: { createMs: 50 } });
      world.fail("POST", sandboxes, { kind: "slow", ms: 300 });
      const request = world.request("exit 0");
      const ref = await world.prepare(request, hasty);
      assert.deepEqual(world.named(request.name), [ref.uid]);
    });

    test("E7: after 504 the sandbox is there, or deleted as well as the service could, and one is made ours", async () => {
      for (const deletes of [false, true]) {
        world.fail("POST", sandboxes, { kind: "late", deletes, visible: true });
        const request = world.request("exit 0");
        const made = world.prepare(request);
        if (deletes) {
          // Nothing shows: the create is tried again by the controller's own next step.
          await assert.rejects(made, (error) => isServiceError(error, 504));
          await world.prepare(request);
        } else await made;
        assert.equal(world.named(request.name).length, 1);
      }
    });

    test("E7, E21: a create that shows only later makes an orphan that never ran, and the recorded one stays", async () => {
      world.fail("POST", sandboxes, { kind: "late", deletes: false, visible: false });
      const request = world.request("echo ran; sleep 1000");
      await assert.rejects(world.prepare(request), (error) => isServiceError(error, 504));
      const [late = ""] = world.named(request.name);
      const ref = await world.prepare(request);
      await world.runtime.release(ref, 1n, minute, never);
      world.service.box(late).visible = true;
      const names = (await collect(world.runtime.list(never))).filter(({ name }) => name === request.name);
      assert.deepEqual(new Set(names.map(({ uid }) => uid)), new Set([late, ref.uid]));
      assert.equal(await world.runtime.find(request.name, never), ref.uid, "the claimed one has the name");
      // As the sweep does it.
      const orphan = { name: request.name, uid: late };
      await world.runtime.stop(orphan, 5n, never);
      assert.equal((await stopped(world.runtime, orphan)).outcome.kind, "never_started");
      await world.runtime.remove(orphan, never);
      assert.deepEqual(world.named(request.name), [ref.uid]);
      assert.equal(await world.state(ref), "running");
      await world.runtime.stop(ref, 1n, never);
    });

    test("E7: of duplicates of one second the claimed one is adopted, and the others are retired and deleted", async () => {
      const request = world.request("exit 0");
      const first = await world.prepare(request);
      const { metadata } = world.service.box(first.uid);
      for (let made = 0; made < 3; made += 1) {
        await api().create(
          { image: { uri: "x" }, entrypoint: ["sh"], resourceLimits: {}, timeout: 60, metadata },
          never,
        );
      }
      assert.equal(world.named(request.name).length, 4);
      const adopted = await world.prepare({ ...request, epoch: 2n }, world.another());
      assert.deepEqual(adopted, first);
      assert.deepEqual(world.named(request.name), [first.uid]);
      await assert.rejects(world.runtime.release(first, 1n, minute, never), refused("superseded"));
    });

    test("E7: another's create that is under way is waited for, and not doubled", async () => {
      const request = world.request("exit 0");
      const ref = await world.prepare(request);
      const box = world.service.box(ref.uid);
      box.state = "Pending";
      const waiting = world.prepare({ ...request, epoch: 2n });
      await until("it was seen", () => world.count("GET", sandboxes) > 0);
      box.state = "Running";
      assert.deepEqual(await waiting, ref);
    });

    test("E7: a create that arrives late, after another controller's was claimed, gives way to it", async () => {
      const request = world.request("exit 0");
      const late = world.service.held.hold("received", 1, ({ verb }) => verb === "create");
      const slow = assert.rejects(world.prepare(request), refused("superseded"));
      await late.reached;
      const ref = await world.prepare({ ...request, epoch: 2n }, world.another());
      assert.equal(await late.go(), 202);
      await slow;
      assert.deepEqual(world.named(request.name), [ref.uid]);
      assert.partialDeepStrictEqual(await world.runtime.observe(ref, never), { state: "held", epoch: 2n });
    });

    test("a program that is longer than one variable comes in parts", async () => {
      const words = "word ".repeat(40_000);
      const spec = {
        ...world.request("").spec,
        env: { WORDS: words.slice(0, 100_000), MORE: words.slice(0, 90_000) },
      };
      const request = world.request("", {
        spec: { ...spec, command: ["/bin/sh", "-c", 'printf %s "$WORDS$MORE" | wc -c'] },
      });
      const ref = await world.prepare(request);
      await world.runtime.release(ref, 1n, minute, never);
      await stopped(world.runtime, ref);
      assert.equal((await world.output(ref)).trim(), "190000");
    });

    test("metadata holds labels only: what is none is refused before anything is sent", async () => {
      const before = world.service.requests.length;
      await assert.rejects(
        world.prepare(world.request("exit 0", { name: "n".repeat(64) })),
        refused("invalid"),
      );
      assert.equal(world.service.requests.length, before);
      const ref = await world.held("exit 0");
      for (const value of Object.values(world.service.box(ref.uid).metadata)) assert.ok(value.length <= 63);
    });
  });

  describe("looking and ending", () => {
    test("pages shift while they are read: what was made meanwhile hides nothing, and nothing comes twice", async () => {
      const small = new LifecycleApi(
        { url: world.service.url, apiKey: null, useServerProxy: true },
        { ...defaultLimits, pageItemsMax: 2 },
      );
      const body = (name: string) => ({
        image: { uri: "x" },
        entrypoint: ["sh"],
        resourceLimits: {},
        timeout: 60,
        metadata: { "test/shift": "yes", name },
      });
      const ids: string[] = [];
      for (const name of ["a", "b", "c", "d", "e"]) ids.push((await small.create(body(name), never)).id);
      let removed = false;
      world.service.onPage = (page) => {
        if (page !== 2 || removed) return;
        removed = true;
        // The newest goes, so that the third moves to the page that was read already.
        const newest = ids.at(-1) ?? "";
        world.service.box(newest).known = false;
      };
      const found = (await small.list("test/shift", "yes", never)).map(({ id }) => id);
      assert.equal(new Set(found).size, found.length);
      for (const id of ids.slice(0, 4)) assert.ok(found.includes(id), "one was hidden by the shift");
      for (const id of ids) world.service.box(id).destroy();
      for (const id of ids) world.service.boxes.delete(id);
    });

    test("404 is how each ends: observed as absent, removed as done, released and read as gone", async () => {
      const ref = await world.held("exit 0");
      await api().remove(ref.uid, never);
      await api().remove(ref.uid, never);
      assert.deepEqual(await world.runtime.observe(ref, never), { state: "absent" });
      await world.runtime.remove(ref, never);
      await assert.rejects(world.runtime.release(ref, 1n, minute, never), refused("gone"));
      await assert.rejects(world.output(ref), refused("gone"));
      assert.equal(await world.runtime.find(ref.name, never), null);
    });

    test("E8: a deletion proves nothing: what may run is not deleted, and what was deleted is no proof", async () => {
      const ref = await world.running("sleep 1000");
      await assert.rejects(world.runtime.remove(ref, never), refused("invalid"));
      assert.equal(await world.state(ref), "running");
      world.service.podsLinger = true;
      // Somebody else deletes it: 204 at once, 404 from then on, and the pod runs on.
      await api().remove(ref.uid, never);
      assert.deepEqual(await world.runtime.observe(ref, never), { state: "absent" });
      assert.ok(await runsNow(ref.uid));
      world.service.settle();
      await assertNoProcessOf([ref.uid]);
    });

    test("E8, E14: when a removal deletes, nothing of the sandbox runs any more, even while its pod lingers", async () => {
      const ref = await world.running("setsid sleep 1000 & sleep 1000");
      await world.runtime.stop(ref, 1n, never);
      await stopped(world.runtime, ref);
      world.service.podsLinger = true;
      await world.runtime.remove(ref, never);
      await assertNoProcessOf([ref.uid]);
      world.service.settle();
    });

    test("E14: a removal is done when the service has forgotten it, and not before", async () => {
      const ref = await world.released("exit 0");
      await stopped(world.runtime, ref);
      world.service.deleteShownMs = 400;
      await world.runtime.remove(ref, never);
      assert.deepEqual(world.named(ref.name), []);
      const other = await world.released("exit 0");
      await stopped(world.runtime, other);
      world.service.deleteShownMs = 3_000;
      const hasty = world.another({ limits: { removeMs: 100 } });
      await assert.rejects(hasty.remove(other, never), (error) => isHoldfastError(error));
      await until("it is gone", () => world.named(other.name).length === 0);
      await hasty.remove(other, never);
    });

    test("a life that ends before the deadline is prolonged, and one that ends later is never shortened", async () => {
      const ref = await world.prepare(world.request("sleep 1000"));
      const box = world.service.box(ref.uid);
      const first = box.expiresAt ?? 0;
      await world.runtime.release(ref, 1n, seconds(7_200), never);
      const prolonged = box.expiresAt ?? 0;
      assert.ok(prolonged > first + 7_000_000);
      await world.runtime.release(ref, 1n, seconds(5), never);
      assert.equal(box.expiresAt, prolonged);
      await world.runtime.stop(ref, 1n, never);
      await stopped(world.runtime, ref);
    });

    test("E21: what everybody forgot ends by its own life: the service deletes it", async () => {
      const ref = await world.running("sleep 1000");
      world.service.pass(3 * 3_600_000);
      assert.deepEqual(await world.runtime.observe(ref, never), { state: "absent" });
      await assertNoProcessOf([ref.uid]);
    });

    test("E8: no state of the service is a proof, and one that nobody knows is no fault", async () => {
      const ref = await world.running("sleep 1000");
      const box = world.service.box(ref.uid);
      for (const state of ["Allocated", "Unknown", "Terminated", "Failed", "Marooned"]) {
        box.state = state;
        assert.equal(await world.state(ref), "running", state);
      }
      box.daemon.up = false;
      const seen = await world.runtime.observe(ref, never);
      assert.ok(seen.state === "unproven" && seen.reason.includes("Marooned"));
      box.daemon.up = true;
      box.state = "Running";
      await world.runtime.stop(ref, 1n, never);
      await stopped(world.runtime, ref);
    });

    test("E10: the service tells no exit code: it stands in the sandbox's own record", async () => {
      const ref = await world.released("exit 41");
      const { outcome } = await stopped(world.runtime, ref);
      assert.deepEqual([outcome.kind, outcome.exitCode], ["exited", 41]);
      assert.doesNotMatch(JSON.stringify(world.service.box(ref.uid).shown()), /exit_?code/i);
    });

    test("E6: metadata is merged without a lock, so an older epoch written there late fences nothing", async () => {
      const ref = await world.held("echo ran");
      await world.another().fence(ref, 7n, never);
      await api().patchMetadata(ref.uid, { "holdfast.dev/epoch": "1" }, never);
      await assert.rejects(world.runtime.release(ref, 1n, minute, never), refused("superseded"));
      assert.partialDeepStrictEqual(await world.runtime.observe(ref, never), { state: "held", epoch: 7n });
      await world.runtime.stop(ref, 7n, never);
      await world.runtime.remove(ref, never);
    });
  });

  describe("the daemon", () => {
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
      const { outcome } = await stopped(world.runtime, ref);
      assert.equal(outcome.kind, "deadline");
      assert.equal(await world.output(ref), "");
    });
  });
});
