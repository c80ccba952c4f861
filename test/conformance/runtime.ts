import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { brandId, type SandboxId, type TenantId } from "../../src/core/ids.ts";
import { insideTransition } from "../../src/core/outside.ts";
import {
  type LogRecord,
  type Observation,
  type PrepareRequest,
  type Runtime,
  RuntimeRefusal,
  type SandboxOutcome,
  type SandboxRef,
  type SandboxSpec,
} from "../../src/core/runtime.port.ts";
import { microseconds, seconds } from "../../src/core/time.ts";
import { until } from "../support/until.ts";

/** A world under test, as two controllers see it. */
export interface RuntimeUnderTest {
  readonly runtime: Runtime;
  /** Another controller's adapter: it shares nothing with the first but the world. */
  readonly other: Runtime;
  readonly installation: string;
  close(): Promise<void>;
}

export interface RuntimeConformanceOptions {
  /** A command that runs a POSIX shell script. */
  readonly shell: (script: string) => readonly string[];
  readonly image: string | null;
  /** Whether stdout and stderr can be told apart, and bytes come back exactly as they were written. */
  readonly exactLogs: boolean;
  /** Output kept of a sandbox, between 11 and 20 million bytes. */
  readonly logBytesMax: number;
}

const never = new AbortController().signal;
const minute = seconds(60);

export const digestOf = (value: unknown): string =>
  createHash("sha256")
    .update(JSON.stringify(value, (_key, item: unknown) => (typeof item === "bigint" ? `${item}` : item)))
    .digest("hex");

export const refused =
  (reason: RuntimeRefusal["reason"]) =>
  (error: unknown): boolean => {
    assert.ok(error instanceof RuntimeRefusal, `not a refusal: ${String(error)}`);
    assert.equal(error.reason, reason);
    return true;
  };

export async function stopped(
  runtime: Runtime,
  ref: SandboxRef,
  within?: number,
): Promise<Extract<Observation, { state: "stopped" }>> {
  return until(
    `${ref.name} has stopped`,
    async () => {
      const seen = await runtime.observe(ref, never);
      return seen.state === "stopped" ? seen : null;
    },
    within,
  );
}

export async function readLogs(
  runtime: Runtime,
  ref: SandboxRef,
  cursor: string | null = null,
): Promise<readonly LogRecord[]> {
  return collect(runtime.logs(ref, { cursor, follow: false }, never));
}

export async function collect<T>(items: AsyncIterable<T>): Promise<readonly T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

/** What the sweep of orphans does: stop, wait for the proof, remove. */
export async function sweep(runtime: Runtime): Promise<void> {
  for (const object of await collect(runtime.list(never))) {
    await runtime.stop(object, object.epoch, never);
    await stopped(runtime, object);
    await runtime.remove(object, never);
  }
}

export const bytesOf = (records: readonly LogRecord[], stream?: LogRecord["stream"]): Buffer =>
  Buffer.concat(
    records.filter((item) => stream === undefined || item.stream === stream).map((item) => item.bytes),
  );

/** A pod that runs a shell script, under epoch 1. */
export function podRequest(name: string, installation: string, script: string): PrepareRequest {
  const spec = {
    command: ["/bin/sh", "-c", script],
    env: {},
    secrets: {},
    image: "registry.test/shell:1",
    grace: seconds(1),
    limits: { cpuMillicores: 100, memoryBytes: 64 << 20, diskBytes: 64 << 20 },
  };
  return {
    name,
    installation,
    tenant: brandId<TenantId>("acme"),
    sandbox: brandId<SandboxId>(randomUUID()),
    spec,
    specDigest: digestOf(spec),
    epoch: 1n,
    privateEnv: {},
    holdLimit: minute,
  };
}

/** Every runtime passes this suite: processes, Kubernetes, a sandbox service. */
export function runtimeConformance(
  name: string,
  makeRuntime: () => Promise<RuntimeUnderTest>,
  options: RuntimeConformanceOptions,
): void {
  describe(`runtime: ${name}`, () => {
    let world: RuntimeUnderTest;
    let runtime: Runtime;
    let other: Runtime;
    let serial = 0;

    before(async () => {
      world = await makeRuntime();
      ({ runtime, other } = world);
    });
    after(async () => {
      await sweep(runtime);
      await world.close();
    });

    const specOf = (script: string, more: Partial<SandboxSpec> = {}): SandboxSpec => ({
      command: options.shell(script),
      env: {},
      secrets: {},
      image: options.image,
      grace: seconds(5),
      limits: { cpuMillicores: 100, memoryBytes: 64 << 20, diskBytes: 64 << 20 },
      ...more,
    });
    const requestOf = (spec: SandboxSpec, more: Partial<PrepareRequest> = {}): PrepareRequest => ({
      name: `hf-test-${(serial += 1)}`,
      installation: world.installation,
      tenant: brandId<TenantId>("acme"),
      sandbox: brandId<SandboxId>(randomUUID()),
      spec,
      specDigest: digestOf(spec),
      epoch: 10n,
      privateEnv: {},
      holdLimit: minute,
      ...more,
    });
    const prepare = async (request: PrepareRequest, by = runtime): Promise<SandboxRef> => ({
      name: request.name,
      uid: (await by.prepare(request, never)).uid,
    });
    const held = (script: string, more: Partial<SandboxSpec> = {}) =>
      prepare(requestOf(specOf(script, more)));
    const released = async (script: string, more: Partial<SandboxSpec> = {}): Promise<SandboxRef> => {
      const ref = await held(script, more);
      await runtime.release(ref, 10n, minute, never);
      return ref;
    };
    const end = async (script: string, more: Partial<SandboxSpec> = {}): Promise<SandboxOutcome> =>
      (await stopped(runtime, await released(script, more))).outcome;
    const wrote = (ref: SandboxRef, text: string) =>
      until(`${ref.name} wrote ${text}`, async () => bytesOf(await readLogs(runtime, ref)).includes(text));
    const stateOf = async (ref: SandboxRef) => (await runtime.observe(ref, never)).state;
    const isReleased = async (ref: SandboxRef) => {
      const seen = await runtime.observe(ref, never);
      return seen.state === "running" || (seen.state === "stopped" && seen.outcome.kind !== "never_started");
    };

    test("E6: what is held doesn't run, and what was stopped while held never will", async () => {
      const ref = await held("echo ran");
      assert.deepEqual(await runtime.observe(ref, never), { state: "held", uid: ref.uid, epoch: 10n });
      assert.deepEqual(await readLogs(runtime, ref), []);
      await runtime.stop(ref, 10n, never);
      await assert.rejects(other.release(ref, 10n, minute, never), refused("stopping"));
      const { outcome, proof } = await stopped(runtime, ref);
      assert.equal(outcome.kind, "never_started");
      assert.notEqual(proof, "");
      await assert.rejects(runtime.release(ref, 10n, minute, never), refused("stopping"));
      assert.deepEqual(await readLogs(runtime, ref), []);
    });

    test("E6: however often and by whomever it is released, it runs once", async () => {
      const ref = await held("echo ran");
      const releases = [runtime, other, runtime, other].map((by) => by.release(ref, 10n, minute, never));
      await Promise.all(releases);
      await other.fence(ref, 11n, never);
      await other.release(ref, 11n, minute, never);
      assert.equal((await stopped(runtime, ref)).outcome.kind, "exited");
      await other.fence(ref, 12n, never);
      await other.release(ref, 12n, minute, never);
      assert.equal(bytesOf(await readLogs(runtime, ref)).toString(), "ran\n");
    });

    test("E6: after a fence every call of an older epoch is refused, and the new one releases", async () => {
      const request = requestOf(specOf("exit 0"));
      const ref = await prepare(request);
      await other.fence(ref, 11n, never);
      await assert.rejects(runtime.release(ref, 10n, minute, never), refused("superseded"));
      await assert.rejects(runtime.stop(ref, 10n, never), refused("superseded"));
      await assert.rejects(runtime.fence(ref, 10n, never), refused("superseded"));
      await assert.rejects(runtime.prepare(request, never), refused("superseded"));
      assert.deepEqual(await runtime.observe(ref, never), { state: "held", uid: ref.uid, epoch: 11n });
      await other.release(ref, 11n, minute, never);
      await assert.rejects(runtime.release(ref, 10n, minute, never), refused("superseded"));
      assert.equal((await stopped(other, ref)).outcome.exitCode, 0);
    });

    test("E6: an epoch that was never given to the object releases nothing", async () => {
      const ref = await held("echo ran");
      await assert.rejects(runtime.release(ref, 12n, minute, never), RuntimeRefusal);
      assert.equal(await stateOf(ref), "held");
    });

    test("E6: release against fence: whichever is first decides, and the answer is true", async () => {
      for (let round = 0; round < 6; round += 1) {
        const ref = await held("exit 0");
        const calls = [() => runtime.release(ref, 10n, minute, never), () => other.fence(ref, 11n, never)];
        if (round % 2 === 1) calls.reverse();
        const results = await Promise.allSettled(calls.map((call) => call()));
        const release = results[round % 2];
        if (release?.status === "rejected") refused("superseded")(release.reason);
        assert.equal(await isReleased(ref), release?.status === "fulfilled");
      }
    });

    test("E6: release against stop: it never starts, or it was started and is stopped", async () => {
      for (let round = 0; round < 6; round += 1) {
        const ref = await held("sleep 1000");
        const calls = [() => runtime.release(ref, 10n, minute, never), () => other.stop(ref, 10n, never)];
        if (round % 2 === 1) calls.reverse();
        const results = await Promise.allSettled(calls.map((call) => call()));
        const release = results[round % 2];
        if (release?.status === "rejected") refused("stopping")(release.reason);
        const expected = release?.status === "fulfilled" ? "stopped" : "never_started";
        assert.equal((await stopped(runtime, ref)).outcome.kind, expected);
      }
    });

    test("E7: another UID is refused by every write and isn't found", async () => {
      const ref = await held("echo ran");
      const wrong = { name: ref.name, uid: randomUUID() };
      await assert.rejects(runtime.release(wrong, 10n, minute, never), refused("wrong_uid"));
      await assert.rejects(runtime.fence(wrong, 11n, never), refused("wrong_uid"));
      await assert.rejects(runtime.stop(wrong, 10n, never), refused("wrong_uid"));
      assert.deepEqual(await runtime.observe(wrong, never), { state: "absent" });
      await runtime.remove(wrong, never);
      assert.equal(await stateOf(ref), "held");
    });

    test("E7: an object of the same name and digest is adopted, of another digest refused", async () => {
      const request = requestOf(specOf("exit 0"));
      const ref = await prepare(request);
      assert.deepEqual(await prepare({ ...request, epoch: 11n }, other), ref);
      assert.deepEqual(await runtime.observe(ref, never), { state: "held", uid: ref.uid, epoch: 11n });
      const changed = { ...request, epoch: 12n, specDigest: digestOf("another") };
      await assert.rejects(other.prepare(changed, never), refused("name_taken"));
      await other.release(ref, 11n, minute, never);
      await stopped(runtime, ref);
      assert.deepEqual(await prepare({ ...request, epoch: 12n }, other), ref);
      assert.equal((await stopped(runtime, ref)).outcome.kind, "exited");
    });

    test("E7: controllers that prepare one name at once make one object", async () => {
      const request = requestOf(specOf("exit 0"));
      const refs = await Promise.all([runtime, other, runtime, other].map((by) => prepare(request, by)));
      assert.equal(new Set(refs.map((ref) => ref.uid)).size, 1);
      const listed = await collect(runtime.list(never));
      assert.equal(listed.filter((object) => object.name === request.name).length, 1);
    });

    test("E7: of two specs that want one name at once, one gets it", async () => {
      const specs = [specOf("exit 0"), specOf("exit 1")];
      const { name } = requestOf(specOf(""));
      const requests = specs.map((spec) => requestOf(spec, { name }));
      const results = await Promise.allSettled(
        requests.map((request, index) => (index === 0 ? runtime : other).prepare(request, never)),
      );
      const lost = results.filter((result) => result.status === "rejected");
      assert.equal(lost.length, 1);
      refused("name_taken")(lost[0]?.reason);
    });

    test("E8: stopping what runs keeps its logs, and its end is shown by evidence", async () => {
      const ref = await released("echo before; sleep 1000");
      await wrote(ref, "before");
      assert.equal(await stateOf(ref), "running");
      await runtime.stop(ref, 10n, never);
      await other.stop(ref, 10n, never);
      const { outcome } = await stopped(runtime, ref);
      assert.equal(outcome.kind, "stopped");
      assert.ok(outcome.startedAt !== null && outcome.finishedAt !== null);
      await runtime.stop(ref, 10n, never);
      assert.equal(bytesOf(await readLogs(runtime, ref)).toString(), "before\n");
    });

    test("E8: a command that ends in time may use its grace", async () => {
      const ref = await released("trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done");
      await wrote(ref, "ready");
      await runtime.stop(ref, 10n, never);
      const { outcome } = await stopped(runtime, ref);
      assert.deepEqual([outcome.kind, outcome.exitCode], ["stopped", 7]);
      assert.equal(bytesOf(await readLogs(runtime, ref), "stdout").toString(), "ready\nbye\n");
    });

    test("E8: a command that ignores the request is killed after its grace", async () => {
      const script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
      const ref = await released(script, { grace: microseconds(300_000n) });
      await wrote(ref, "ready");
      await runtime.stop(ref, 10n, never);
      const { outcome } = await stopped(runtime, ref);
      assert.equal(outcome.kind, "stopped");
      assert.ok(outcome.signal === "SIGKILL" || outcome.exitCode === 137);
    });

    test("E4: its own limit ends it", async () => {
      const ref = await held("echo ready; sleep 1000");
      await runtime.release(ref, 10n, seconds(3), never);
      const { outcome } = await stopped(runtime, ref);
      assert.equal(outcome.kind, "deadline");
      assert.equal(bytesOf(await readLogs(runtime, ref)).toString(), "ready\n");
    });

    test("E4: with nothing left of the deadline, nothing starts", async () => {
      const ref = await held("echo ran");
      await assert.rejects(runtime.release(ref, 10n, microseconds(0n), never), refused("invalid"));
      assert.equal(await stateOf(ref), "held");
    });

    test("E21: what nobody releases ends itself after its hold limit", async () => {
      const ref = await prepare(requestOf(specOf("echo ran"), { holdLimit: seconds(0.3) }));
      assert.equal((await stopped(runtime, ref)).outcome.kind, "never_started");
      await assert.rejects(runtime.release(ref, 10n, minute, never), refused("stopping"));
    });

    test("E10: exit codes, signals and failures to start are told apart", async () => {
      assert.partialDeepStrictEqual(await end("exit 0"), { kind: "exited", exitCode: 0, signal: null });
      assert.partialDeepStrictEqual(await end("exit 41"), { kind: "exited", exitCode: 41 });
      const killed = await end("kill -KILL $$");
      assert.ok(killed.signal === "SIGKILL" || killed.exitCode === 137);
      const missing = await end("", { command: ["/no/such/program"] });
      assert.equal(missing.kind, "start_failed");
      assert.match(missing.message, /ENOENT|no such file/i);
    });

    test("E17: spec and private environment reach the command, and the spec's secrets need to exist", async () => {
      const spec = specOf('echo "$PLAIN $TOKEN"', { env: { PLAIN: "plain" } });
      const ref = await prepare(requestOf(spec, { privateEnv: { TOKEN: "token" } }));
      await runtime.release(ref, 10n, minute, never);
      await stopped(runtime, ref);
      assert.equal(bytesOf(await readLogs(runtime, ref)).toString(), "plain token\n");
      const without = await end("echo ran", { secrets: { KEY: { name: "absent", key: "absent" } } });
      assert.equal(without.kind, "start_failed");
    });

    test("E19: logs are complete and can be resumed from any cursor", async () => {
      const ref = await released("for i in 1 2 3 4 5 6; do echo out $i; sleep 0.02; done");
      await stopped(runtime, ref);
      const all = await readLogs(other, ref);
      assert.equal(bytesOf(all).toString(), [1, 2, 3, 4, 5, 6].map((i) => `out ${i}\n`).join(""));
      for (const [index, record] of all.entries()) {
        assert.ok(record.cursor.length <= 200);
        assert.deepEqual(await readLogs(runtime, ref, record.cursor), all.slice(index + 1));
      }
    });

    test("E19: both streams and any bytes come back", { skip: !options.exactLogs }, async () => {
      const ref = await released("printf 'a\\000\\377\\r\\nb'; printf 'c\\033[1m' >&2");
      await stopped(runtime, ref);
      const all = await readLogs(runtime, ref);
      assert.deepEqual(bytesOf(all, "stdout"), Buffer.from("a\0\xff\r\nb", "latin1"));
      assert.deepEqual(bytesOf(all, "stderr"), Buffer.from("c\x1b[1m"));
    });

    test("E19: a follower sees output while it runs, and all of it to the end", async () => {
      const ref = await released("echo first; trap 'echo last; exit 0' TERM; while :; do sleep 0.05; done");
      const seen: LogRecord[] = [];
      for await (const record of other.logs(ref, { cursor: null, follow: true }, never)) {
        seen.push(record);
        if (seen.length === 1) await runtime.stop(ref, 10n, never);
      }
      assert.equal(bytesOf(seen, "stdout").toString(), "first\nlast\n");
      assert.equal(await stateOf(ref), "stopped");
    });

    test("E19: a follower goes when its caller goes", async () => {
      const ref = await held("echo ran");
      const gone = new AbortController();
      const reading = collect(runtime.logs(ref, { cursor: null, follow: true }, gone.signal));
      gone.abort(new Error("the caller went away"));
      await assert.rejects(reading);
    });

    test("E19: ten million bytes come back whole", async () => {
      const ref = await released("yes 0123456789abcdef | head -c 10000000");
      await stopped(runtime, ref);
      const hash = createHash("sha256");
      let bytes = 0;
      for await (const record of runtime.logs(ref, { cursor: null, follow: true }, never)) {
        assert.ok(record.bytes.length <= 64 * 1024);
        bytes += record.bytes.length;
        hash.update(record.bytes);
      }
      assert.equal(bytes, 10_000_000);
      const expected = "0123456789abcdef\n".repeat(588_236).slice(0, 10_000_000);
      assert.equal(hash.digest("hex"), createHash("sha256").update(expected).digest("hex"));
    });

    test("E19: output beyond the bound is dropped with a mark, and the command isn't blocked", async () => {
      const ref = await released("yes 0123456789abcdef | head -c 25000000; exit 3");
      assert.equal((await stopped(runtime, ref)).outcome.exitCode, 3);
      const all = bytesOf(await readLogs(runtime, ref));
      assert.ok(all.length <= options.logBytesMax + 1_000);
      assert.match(all.subarray(-200).toString(), /truncated/);
    });

    test("E14: what may still run is not removed; what has stopped is, once, with its UID", async () => {
      const request = requestOf(specOf("exit 0"));
      assert.equal(await other.find(request.name, never), null);
      const ref = await prepare(request);
      assert.equal(await other.find(request.name, never), ref.uid);
      await assert.rejects(runtime.remove(ref, never), RuntimeRefusal);
      await runtime.stop(ref, 10n, never);
      await stopped(runtime, ref);
      await Promise.all([runtime.remove(ref, never), other.remove(ref, never)]);
      await runtime.remove(ref, never);
      assert.deepEqual(await runtime.observe(ref, never), { state: "absent" });
      await assert.rejects(runtime.release(ref, 10n, minute, never), refused("gone"));
      await assert.rejects(readLogs(runtime, ref), refused("gone"));

      const next = await prepare(request);
      assert.notEqual(next.uid, ref.uid);
      await other.remove(ref, never);
      assert.equal(await stateOf(next), "held");
    });

    test("E21: the list names every object with its owner and epoch", async () => {
      const request = requestOf(specOf("exit 0"));
      const ref = await prepare(request);
      await runtime.fence(ref, 15n, never);
      const listed = await collect(other.list(never));
      const found = listed.find((object) => object.uid === ref.uid);
      const { name, tenant, sandbox } = request;
      assert.partialDeepStrictEqual(found, { ...ref, name, tenant, sandbox, epoch: 15n });
      await runtime.stop(ref, 15n, never);
      await stopped(runtime, ref);
      await runtime.remove(ref, never);
      const after = await collect(other.list(never));
      assert.ok(!after.some((object) => object.uid === ref.uid));
    });

    test("E8: who waits for a change is woken by the end", async () => {
      const ref = await released("trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done");
      await wrote(ref, "ready");
      const waiting = (async () => {
        while ((await other.observe(ref, never)).state !== "stopped") await other.changed(ref, never);
      })();
      await runtime.stop(ref, 10n, never);
      await waiting;
      const gone = new AbortController();
      gone.abort();
      await runtime.changed(ref, gone.signal);
    });

    test("S10: no method may be called while a transition is open", async () => {
      const ref = { name: "hf-test-0", uid: randomUUID() };
      const calls: readonly (() => Promise<unknown>)[] = [
        () => runtime.prepare(requestOf(specOf("")), never),
        () => runtime.fence(ref, 1n, never),
        () => runtime.release(ref, 1n, minute, never),
        () => runtime.observe(ref, never),
        () => runtime.changed(ref, never),
        () => runtime.stop(ref, 1n, never),
        async () => runtime.logs(ref, { cursor: null, follow: false }, never),
        () => runtime.find(ref.name, never),
        () => runtime.secretValues({ secrets: {} }, never),
        () => runtime.remove(ref, never),
        async () => runtime.list(never),
      ];
      for (const call of calls) await assert.rejects(insideTransition("test", call), /S10/);
    });
  });
}
