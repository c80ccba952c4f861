import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { appendFile, chmod, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { isHoldfastError } from "../../src/core/errors.ts";
import { uuidv7 } from "../../src/core/ids.ts";
import type { PrepareRequest, Runtime, SandboxRef } from "../../src/core/runtime.port.ts";
import { instant, microseconds, seconds } from "../../src/core/time.ts";
import { toJson } from "../../src/runtimes/process/fields.ts";
import { identify, type ProcessIdentity, presence } from "../../src/runtimes/process/identity.ts";
import { type ProcessRuntimeOptions, processRuntime } from "../../src/runtimes/process/process-runtime.ts";
import { readProcesses } from "../../src/runtimes/process/process-table.ts";
import { now, type RequestRecord, readClaim } from "../../src/runtimes/process/records.ts";
import { startSupervisor } from "../../src/runtimes/process/start-supervisor.ts";
import { Store } from "../../src/runtimes/process/store.ts";
import { type ControllerTask, taskRequest } from "../fixtures/process-controller.ts";
import { until } from "../support/until.ts";
import { bytesOf, collect, readLogs, refused, runtimeConformance, stopped, sweep } from "./runtime.ts";

const never = new AbortController().signal;
const minute = seconds(60);
const logBytesMax = 12_000_000;

async function makeOptions(): Promise<ProcessRuntimeOptions & { readonly root: string }> {
  const root = await mkdtemp("/tmp/hf-process-");
  return {
    root,
    directory: join(root, "objects"),
    installation: "test",
    secretsDirectory: join(root, "secrets"),
    socketDirectory: join(root, "s"),
    logBytesMax,
  };
}

runtimeConformance(
  "process",
  async () => {
    const { root, ...options } = await makeOptions();
    return {
      runtime: processRuntime(options),
      other: processRuntime(options),
      installation: options.installation,
      close: () => rm(root, { recursive: true, force: true }),
    };
  },
  { shell: (script) => ["/bin/sh", "-c", script], image: null, exactLogs: true, logBytesMax },
);

describe("process runtime", () => {
  let root: string;
  let options: ProcessRuntimeOptions;
  let runtime: Runtime;
  let serial = 0;
  const uids = new Set<string>();

  before(async () => {
    ({ root, ...options } = await makeOptions());
    runtime = processRuntime(options);
  });
  after(async () => {
    await sweep(runtime);
    // E8: at the end nothing of any sandbox is left, neither its processes nor its supervisor.
    await until("no process of any sandbox is left", async () => (await marked(...uids)).length === 0);
    assert.deepEqual(await readdir(join(root, "s")), []);
    await rm(root, { recursive: true, force: true });
  });

  const task = (script: string): ControllerTask => {
    return { options, name: `process-${(serial += 1)}`, script, epoch: "10" };
  };
  const prepare = async (script: string, more: Partial<PrepareRequest> = {}): Promise<SandboxRef> => {
    const request = { ...taskRequest(task(script)), ...more };
    const { uid } = await runtime.prepare(request, never);
    uids.add(uid);
    return { name: request.name, uid };
  };
  const release = async (script: string, more: Partial<PrepareRequest> = {}): Promise<SandboxRef> => {
    const ref = await prepare(script, more);
    await runtime.release(ref, 10n, minute, never);
    return ref;
  };
  const pathOf = (ref: SandboxRef, file: string) => join(options.directory, ref.name, ref.uid, file);
  const output = async (ref: SandboxRef) => bytesOf(await readLogs(runtime, ref)).toString();
  const wrote = (ref: SandboxRef, text: string) =>
    until(`${ref.name} wrote ${text}`, async () => (await output(ref)).includes(text));
  const marked = async (...of: readonly string[]) =>
    (await readProcesses()).filter((entry) =>
      entry.marks.some((mark) => of.includes(mark.split("=")[1] ?? "")),
    );

  async function supervisorOf(ref: SandboxRef): Promise<ProcessIdentity> {
    const claim = readClaim(await readFile(pathOf(ref, "supervisor.json"), "utf8"));
    assert.ok(claim.kind === "supervisor");
    return claim.identity;
  }
  async function killSupervisor(ref: SandboxRef): Promise<void> {
    const identity = await supervisorOf(ref);
    process.kill(identity.pid, "SIGKILL");
    await until("the supervisor is gone", async () => (await presence(identity)) === "gone");
  }
  async function editSupervisor(ref: SandboxRef, change: Partial<ProcessIdentity>): Promise<void> {
    const identity = { ...(await supervisorOf(ref)), ...change };
    await writeFile(
      pathOf(ref, "supervisor.json"),
      toJson({ kind: "supervisor", identity, socket: "/none" }),
    );
  }
  async function runController(work: ControllerTask) {
    const program = fileURLToPath(new URL("../fixtures/process-controller.ts", import.meta.url));
    const child = spawn(process.execPath, [program, toJson(work)], {
      detached: true,
      stdio: ["pipe", "pipe", "inherit"],
    });
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
    const line = async () => String((await lines.next()).value);
    const uid = (await line()).replace("uid ", "");
    uids.add(uid);
    const pid = child.pid ?? 0;
    assert.ok(pid > 1);
    const killGroup = async () => {
      const exit = once(child, "exit");
      process.kill(-pid, "SIGKILL");
      await exit;
    };
    return {
      ref: { name: work.name, uid },
      send: (text: string) => child.stdin.write(`${text}\n`),
      line,
      pid,
      killGroup,
    };
  }
  /** A published object without a supervisor: its creator was killed at that moment. */
  async function publish(more: Partial<RequestRecord> = {}): Promise<SandboxRef> {
    const request = taskRequest(task("echo ran"));
    const { privateEnv, ...asked } = request;
    const settings = {
      secretsDirectory: options.secretsDirectory,
      socketDirectory: join(root, "s"),
      searchPath: "/usr/bin:/bin",
      logBytesMax,
    };
    const record = { ...asked, uid: uuidv7(), createdAt: now(), settings, ...more };
    uids.add(record.uid);
    await mkdir(join(options.directory, ".staging"), { recursive: true });
    assert.equal(await new Store(options.directory).create(record, privateEnv), true);
    return record;
  }

  test("G6: a controller is killed with its whole group; another adopts what runs, and its logs", async () => {
    const work = task("trap 'echo last; exit 5' TERM; echo first; while :; do sleep 0.05; done");
    const controller = await runController(work);
    controller.send("release 60000000");
    assert.equal(await controller.line(), "released");
    await controller.killGroup();

    const { ref } = controller;
    assert.deepEqual(await runtime.prepare({ ...taskRequest(work), epoch: 11n }, never), { uid: ref.uid });
    await wrote(ref, "first");
    assert.equal((await runtime.observe(ref, never)).state, "running");
    await runtime.stop(ref, 11n, never);
    assert.partialDeepStrictEqual((await stopped(runtime, ref)).outcome, { kind: "stopped", exitCode: 5 });
    assert.equal(bytesOf(await readLogs(runtime, ref), "stdout").toString(), "first\nlast\n");
  });

  test("E4: the limit ends it when every controller is dead", async () => {
    const controller = await runController(task("trap '' TERM; while :; do sleep 0.05; done"));
    controller.send("release 500000");
    assert.equal(await controller.line(), "released");
    await controller.killGroup();
    // Only the file is watched: nobody looks through a runtime.
    await until("the outcome is recorded", () => existsSync(pathOf(controller.ref, "outcome.json")));
    await until("nothing of it is left", async () => (await marked(controller.ref.uid)).length === 0);
    const { outcome } = await stopped(runtime, controller.ref);
    assert.partialDeepStrictEqual(outcome, { kind: "deadline", signal: "SIGKILL" });
  });

  test("E6: a controller that was suspended past a takeover releases nothing", async () => {
    const controller = await runController(task("echo ran"));
    process.kill(controller.pid, "SIGSTOP");
    await runtime.fence(controller.ref, 11n, never);
    controller.send("release 60000000");
    process.kill(controller.pid, "SIGCONT");
    assert.equal(await controller.line(), "superseded");
    assert.equal((await runtime.observe(controller.ref, never)).state, "held");
    await controller.killGroup();
  });

  test("E8: a supervisor killed while it held: it never started, and never will", async () => {
    const ref = await prepare("echo ran");
    await killSupervisor(ref);
    await assert.rejects(runtime.release(ref, 10n, minute, never), refused("stopping"));
    const { outcome, proof } = await stopped(runtime, ref);
    assert.equal(outcome.kind, "never_started");
    assert.match(proof, /supervisor gone \(boot .*, pid \d+, start \d+\), no process with its marker/);
  });

  test("E8: a supervisor killed while it ran: its processes are ended, and the outcome is lost", async () => {
    const ref = await release("setsid sleep 1000 & echo ready; sleep 1000");
    await wrote(ref, "ready");
    await killSupervisor(ref);
    const { outcome } = await stopped(runtime, ref);
    assert.equal(outcome.kind, "lost");
    assert.ok(outcome.startedAt !== null);
    assert.deepEqual(await marked(ref.uid), []);
    await assert.rejects(runtime.stop(ref, 9n, never), refused("superseded"));
    assert.equal(await output(ref), "ready\n");
  });

  test("E8: without its supervisor a command that cleared its environment is found by its pid", async () => {
    const ref = await release("echo $$; exec env -i sleep 1000");
    await wrote(ref, "\n");
    const main = await identify(Number(await output(ref)));
    assert.ok(main !== null);
    await until(
      "the marker is gone",
      async () => !(await marked(ref.uid)).some(({ pid }) => pid === main.pid),
    );
    await killSupervisor(ref);
    assert.equal((await stopped(runtime, ref)).outcome.kind, "lost");
    assert.equal(await presence(main), "gone");
  });

  test("E8: a daemon that left group and session is ended before it is called stopped", async () => {
    const ref = await release(
      "(setsid sh -c 'trap \"\" TERM HUP; echo daemon; sleep 1000' &) ; sleep 0.3; exit 4",
    );
    const { outcome } = await stopped(runtime, ref);
    assert.partialDeepStrictEqual(outcome, { kind: "exited", exitCode: 4 });
    assert.ok(!(await marked(ref.uid)).some((entry) => entry.marks[0]?.startsWith("HOLDFAST_SANDBOX")));
    assert.equal(await output(ref), "daemon\n");
  });

  test("E8: a child that cleared its environment and left the session is ended with its parent", async () => {
    const ref = await release("env -i setsid sleep 1000 & echo $!; wait");
    await wrote(ref, "\n");
    const child = await identify(Number(await output(ref)));
    assert.ok(child !== null);
    await runtime.stop(ref, 10n, never);
    await stopped(runtime, ref);
    assert.equal(await presence(child), "gone");
  });

  test("E8: a pid that belongs to another process by now is not the supervisor, and is left alone", async () => {
    const ref = await prepare("echo ran");
    await killSupervisor(ref);
    const bystander = spawn("sleep", ["1000"]);
    await once(bystander, "spawn");
    await editSupervisor(ref, { pid: bystander.pid ?? 0 });
    assert.equal((await stopped(runtime, ref)).outcome.kind, "never_started");
    assert.equal(bystander.exitCode ?? bystander.signalCode, null);
    bystander.kill("SIGKILL");
  });

  test("E8: after a reboot nothing of it runs, whoever has its pid", async () => {
    const ref = await release("exit 0");
    await stopped(runtime, ref);
    await rm(pathOf(ref, "outcome.json"));
    await editSupervisor(ref, { boot: "an-earlier-boot", pid: process.pid });
    const { outcome, proof } = await stopped(runtime, ref);
    assert.equal(outcome.kind, "lost");
    assert.match(proof, /host restarted/);
  });

  test("E8: what can't be seen from here is unproven, and is not removed", async () => {
    const ref = await prepare("echo ran");
    const identity = await supervisorOf(ref);
    const claim = await readFile(pathOf(ref, "supervisor.json"), "utf8");
    await editSupervisor(ref, { ...identity, namespace: "pid:[1]" });
    assert.equal((await runtime.observe(ref, never)).state, "unproven");
    await assert.rejects(runtime.remove(ref, never), refused("invalid"));
    await writeFile(pathOf(ref, "supervisor.json"), claim.slice(0, 10));
    assert.equal((await runtime.observe(ref, never)).state, "unproven");
    await writeFile(pathOf(ref, "supervisor.json"), claim);
    assert.equal((await runtime.observe(ref, never)).state, "held");
  });

  test("E8: a supervisor that doesn't answer bounds nobody, and goes on afterwards", async () => {
    const ref = await prepare("echo ran");
    const { pid } = await supervisorOf(ref);
    process.kill(pid, "SIGSTOP");
    await assert.rejects(runtime.stop(ref, 10n, AbortSignal.timeout(200)));
    assert.equal((await runtime.observe(ref, never)).state, "held");
    process.kill(pid, "SIGCONT");
    await runtime.stop(ref, 10n, never);
    assert.equal((await stopped(runtime, ref)).outcome.kind, "never_started");
  });

  test("E8: a supervisor that is asked to end takes its command with it", async () => {
    const ref = await release("echo ready; sleep 1000");
    await wrote(ref, "ready");
    process.kill((await supervisorOf(ref)).pid, "SIGTERM");
    assert.equal((await stopped(runtime, ref)).outcome.kind, "evicted");
  });

  test("G6: an object published without a supervisor gets one from whoever needs it", async () => {
    const ref = await publish();
    assert.deepEqual(await runtime.observe(ref, never), { state: "held", uid: ref.uid, epoch: 10n });
    await runtime.release(ref, 10n, minute, never);
    assert.equal((await stopped(runtime, ref)).outcome.kind, "exited");
    assert.equal(await output(ref), "ran\n");
    assert.ok(!existsSync(pathOf(ref, "private.json")));
  });

  test("G6: stopped without a supervisor it can't get one any more", async () => {
    const ref = await publish();
    await runtime.stop(ref, 10n, never);
    assert.equal((await stopped(runtime, ref)).outcome.kind, "never_started");
    const folder = { ...ref, path: pathOf(ref, "") };
    const supervisorPath = fileURLToPath(
      new URL("../../src/runtimes/process/supervisor.ts", import.meta.url),
    );
    const cacheDirectory = join(root, "cache");
    const launcher = {
      nodePath: process.execPath,
      supervisorPath,
      searchPath: "/usr/bin:/bin",
      cacheDirectory,
    };
    assert.equal(await (await startSupervisor(folder, launcher)).exited, "");
    await assert.rejects(runtime.release(ref, 10n, minute, never), refused("stopping"));
    assert.ok(!existsSync(pathOf(ref, "private.json")));
  });

  test("E21: without a supervisor the hold limit holds as well", async () => {
    const ref = await publish({
      createdAt: instant(now() - 2_000_000n),
      holdLimit: microseconds(1_000_000n),
    });
    assert.equal((await stopped(runtime, ref)).outcome.kind, "never_started");
  });

  test("E21: what a creator left before it died is swept, what a living one builds is not", async () => {
    const staging = join(options.directory, ".staging");
    const dead = spawn("true");
    await once(dead, "exit");
    const self = await identify(process.pid);
    const alive = `${process.pid}.${Buffer.from(self?.startTime ?? "").toString("hex")}.building`;
    await mkdir(join(staging, `${dead.pid}.3132.left`, "work"), { recursive: true });
    await mkdir(join(staging, alive), { recursive: true });
    await mkdir(join(options.directory, ".removed", "left", "work"), { recursive: true });
    await mkdir(join(options.directory, "empty-name"), { recursive: true });
    await collect(runtime.list(never));
    assert.deepEqual(await readdir(staging), [alive]);
    assert.deepEqual(await readdir(join(options.directory, ".removed")), []);
    await rm(join(staging, alive), { recursive: true });
    const ref = await prepare("echo ran", { name: "empty-name" });
    assert.equal((await runtime.observe(ref, never)).state, "held");
  });

  test("E21: an object of another installation is neither listed nor adopted", async () => {
    const ref = await prepare("echo ran");
    const stranger = processRuntime({ ...options, installation: "another" });
    assert.deepEqual(await collect(stranger.list(never)), []);
    const request = { ...taskRequest(task("echo ran")), name: ref.name, installation: "another" };
    await assert.rejects(stranger.prepare(request, never), refused("name_taken"));
    await assert.rejects(runtime.prepare(request, never), refused("invalid"));
  });

  test("E8: a folder deleted by hand is no proof while its processes run", async () => {
    const ref = await release("echo ready; sleep 1000");
    await wrote(ref, "ready");
    const supervisor = await supervisorOf(ref);
    await rm(join(options.directory, ref.name), { recursive: true });
    assert.equal((await runtime.observe(ref, never)).state, "unproven");
    process.kill(supervisor.pid, "SIGTERM");
    await until("nothing of it is left", async () => (await runtime.observe(ref, never)).state === "absent");
  });

  test("E19: a torn tail hides nothing that stands before it", async () => {
    const ref = await release("echo whole");
    await stopped(runtime, ref);
    await appendFile(pathOf(ref, "output.log"), Buffer.from("00000010deadbeef01", "hex"));
    assert.equal(await output(ref), "whole\n");
    assert.equal(bytesOf(await collect(runtime.logs(ref, { cursor: null, follow: true }, never))).length, 6);
  });

  test("E19: a cursor of another sandbox is refused", async () => {
    const [one, two] = [await release("echo 1"), await release("echo 2")];
    await stopped(runtime, one);
    const [record] = await readLogs(runtime, one);
    assert.ok(record !== undefined);
    await assert.rejects(readLogs(runtime, two, record.cursor), refused("invalid"));
    await assert.rejects(readLogs(runtime, one, "0"), refused("invalid"));
  });

  test("G13: neither the command nor its supervisor sees the controller's environment", async () => {
    process.env.HOLDFAST_TEST_PASSWORD = "must-not-leak";
    const ref = await release("env; tr '\\0' '\\n' < /proc/$PPID/environ");
    delete process.env.HOLDFAST_TEST_PASSWORD;
    await stopped(runtime, ref);
    const lines = (await output(ref)).trim().split("\n");
    assert.ok(!lines.some((line) => line.includes("must-not-leak")));
    const ours = ["HOLDFAST_SANDBOX", "HOLDFAST_SUPERVISOR", "NODE_COMPILE_CACHE"];
    const helper = ["HOLDFAST_NODE", "HOLDFAST_PHASE_HELPER"];
    const expected = new Set([...ours, ...helper, "HOME", "TMPDIR", "LANG", "PATH", "PWD"]);
    for (const line of lines) assert.ok(expected.has(line.split("=")[0] ?? ""), line);
  });

  test("G13: a secret is read where it is kept and stands in no file of the sandbox", async () => {
    await mkdir(join(options.secretsDirectory, "registry"), { recursive: true });
    await writeFile(join(options.secretsDirectory, "registry", "token"), "s3cr3t-value");
    const request = taskRequest(task('printf %s "$TOKEN" | wc -c; printf %s "$CALLBACK" | wc -c'));
    const spec = { ...request.spec, secrets: { TOKEN: { name: "registry", key: "token" } } };
    const ref = await release("", { spec, privateEnv: { CALLBACK: "private-value" } });
    await stopped(runtime, ref);
    assert.equal((await output(ref)).replace(/\s+/g, " "), "12 13 ");
    const unreadable = { name: "registry", key: "absent" };
    const secrets = { ...spec.secrets, OTHER: unreadable };
    assert.deepEqual(await runtime.secretValues({ secrets }, never), ["s3cr3t-value"]);
    for (const file of await readdir(pathOf(ref, ""), { withFileTypes: true })) {
      if (!file.isFile()) continue;
      assert.doesNotMatch(await readFile(pathOf(ref, file.name), "latin1"), /s3cr3t-value|private-value/);
    }
  });

  test("E17: the command starts in an empty folder and finds a Node, the helper and a place for scraps", async () => {
    const script =
      'ls -A; test -d "$TMPDIR" && test -f "$HOLDFAST_PHASE_HELPER" && "$HOLDFAST_NODE" --version';
    const ref = await release(script);
    await stopped(runtime, ref);
    assert.equal(await output(ref), `${process.version}\n`);
  });

  test("E1: names that would leave their folder are refused", async () => {
    for (const name of ["../x", "a/b", ".hidden", "", "a\0b", "-".repeat(3), "x".repeat(200)]) {
      await assert.rejects(prepare("echo ran", { name }), refused("invalid"));
      await assert.rejects(runtime.observe({ name, uid: uuidv7() }, never), refused("invalid"));
    }
    const { spec } = taskRequest(task("echo ran"));
    const secrets = { KEY: { name: "..", key: "passwd" } };
    await assert.rejects(prepare("", { spec: { ...spec, secrets } }), refused("invalid"));
    await assert.rejects(prepare("", { privateEnv: { "A=B": "" } }), refused("invalid"));
  });

  test("G13: a socket folder that others can enter, or whose path is too long, is not used", async () => {
    const open = join(root, "open");
    await mkdir(open);
    await chmod(open, 0o755);
    const exposed = processRuntime({ ...options, socketDirectory: open });
    const request = taskRequest(task("echo ran"));
    await assert.rejects(exposed.prepare(request, never), (error) =>
      isHoldfastError(error, "invalid_configuration"),
    );
    assert.throws(
      () => processRuntime({ ...options, socketDirectory: `/tmp/${"long".repeat(30)}` }),
      (error) => isHoldfastError(error, "invalid_configuration"),
    );
  });
});
