import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isHoldfastError } from "../../src/core/errors.ts";
import { seconds } from "../../src/core/time.ts";
import { LifecycleApi } from "../../src/runtimes/opensandbox/lifecycle.ts";
import { defaultLimits } from "../../src/runtimes/opensandbox/opensandbox-runtime.ts";
import { isServiceError, readErrorBody } from "../../src/runtimes/opensandbox/service-error.ts";
import { readProcesses } from "../../src/runtimes/process/process-table.ts";
import { assertNoProcessOf } from "../support/no-process.ts";
import { minute, never } from "../support/opensandbox/world.ts";
import { until } from "../support/until.ts";
import { command, one, openStand, sandboxes } from "./opensandbox-stand.ts";
import { collect, refused, stopped } from "./runtime.ts";

const { world, api } = await openStand();

const runsNow = async (uid: string): Promise<boolean> =>
  (await readProcesses()).some(({ marks }) => marks.includes(`HOLDFAST_SANDBOX=${uid}`));

/** One test for each thing that the service or its daemon does otherwise than one would think. */
describe("OpenSandbox, as its service behaves", () => {
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
});
