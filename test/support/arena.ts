import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { Client } from "pg";
import { brandId, type JobId, type TenantId } from "../../src/core/ids.ts";
import { transition } from "../../src/core/postgres/transition.ts";
import { createTenant } from "../../src/core/tenant.store.ts";
import { cancelJob, submitJob } from "../../src/executions/job.store.ts";
import type { Foundation } from "../../src/main/process.ts";
import type { JobSubmission } from "../../src/wire/job.ts";
import type { ControllerNews, ControllerTask } from "../fixtures/controller-process.ts";
import { openTestFoundation, type Place, type SharedStore } from "./controller-host.ts";
import { testDatabase } from "./database.ts";
import type { HeldRequest } from "./kubernetes/held-requests.ts";
import { assertNoProcessOf } from "./no-process.ts";
import { openRelay, type Relay } from "./relay.ts";
import { until } from "./until.ts";

/** One store on which controllers come and go, each in a process of its own. */
export interface Arena {
  readonly shared: SharedStore;
  readonly tenant: TenantId;
  readonly relay: Relay;
  /** For what this process does itself: submit, cancel. It takes no leases. */
  readonly foundation: Foundation;
  readonly submit: (job: JobSubmission, owner?: TenantId) => Promise<JobId>;
  readonly cancel: (job: JobId, owner?: TenantId) => Promise<void>;
  readonly addTenant: (name: string) => Promise<TenantId>;
  /** A controller process that is up. */
  readonly controller: (task?: Partial<Omit<ControllerTask, "shared">>) => Promise<ControllerProcess>;
  /** As the superuser sees them. */
  readonly rows: <Row>(text: string, values?: readonly unknown[]) => Promise<Row[]>;
  /** What the commands themselves noted outside, one line a start: `JOB ATTEMPT PHASE`. */
  readonly marks: (job?: JobId) => Promise<string[]>;
  readonly markFile: string;
  readonly world: World;
}

/** Where the sandboxes of an arena run. */
export interface World {
  readonly place: Place;
  /** Nothing of these sandboxes runs, whatever the runtime lists. */
  readonly assertNoneRun: (uids: readonly string[]) => Promise<void>;
  /** Hold up a request at a moment of the world itself, `api create received`; null: it has none to offer. */
  readonly hold: ((moment: string, nth: number, tenant: string) => HeldRequest) | null;
}

const processes: World = { place: { kind: "process" }, assertNoneRun: assertNoProcessOf, hold: null };

export interface ControllerProcess {
  readonly pid: number;
  /** By this name it holds leases. */
  readonly holder: string;
  readonly news: readonly ControllerNews[];
  /** Waits for news that is like this, later than what was waited for before or not. */
  readonly heard: <Is extends ControllerNews["is"]>(
    is: Is,
    test?: (news: Extract<ControllerNews, { is: Is }>) => boolean,
  ) => Promise<Extract<ControllerNews, { is: Is }>>;
  readonly signal: (signal: NodeJS.Signals) => void;
  readonly go: () => void;
  /** How it ended: a code, or a signal's name. */
  readonly ended: Promise<number | NodeJS.Signals | null>;
  /** Ends it in order. */
  readonly close: () => Promise<void>;
}

/** Whatever runs a hook at its end: a test's context, or a scope of its own. */
export interface ArenaScope {
  readonly after: (hook: () => void | Promise<void>) => void;
}

export async function openArena(
  scope: ArenaScope,
  { leaseMs = 2_000, world = processes }: { readonly leaseMs?: number; readonly world?: World } = {},
): Promise<Arena> {
  const database = await testDatabase(scope);
  const directory = await mkdtemp(join(tmpdir(), "hf-arena-"));
  scope.after(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  await mkdir(join(directory, "secrets"));
  const superuser = new Client(database.superuser);
  superuser.on("error", () => undefined);
  await superuser.connect();
  scope.after(() => superuser.end());
  const rows: Arena["rows"] = async <Row>(text: string, values: readonly unknown[] = []) =>
    (await superuser.query(text, [...values])).rows as Row[];
  const [store] = await rows<{ installation_id: string }>("select installation_id from holdfast.store");
  if (store === undefined) throw new Error("the store has no row");
  const relay = await openRelay(scope);
  const shared: SharedStore = {
    settings: database.app,
    installation: store.installation_id,
    directory,
    leaseMs,
    callbackKey: randomBytes(32).toString("base64"),
    blobKey: randomBytes(32).toString("base64"),
    origin: relay.origin,
    place: world.place,
  };
  const foundation = await openTestFoundation(shared, "test");
  scope.after(() => foundation.close());
  const tenant = await createTenant(foundation.db, "acme");
  const markFile = join(directory, "marks");
  const asGateway = <T>(owner: TenantId, name: string, body: Parameters<typeof transition<T>>[2]) =>
    transition(foundation.db, { role: "gateway", tenant: owner, name }, body);

  return {
    shared,
    tenant,
    relay,
    foundation,
    rows,
    markFile,
    world,
    addTenant: (name) => createTenant(foundation.db, name),
    async submit(submission, owner = tenant) {
      const row = await asGateway(owner, "submit", (tx) => submitJob(tx, { submission, queueMax: 1000 }));
      return brandId<JobId>(row.job_id);
    },
    async cancel(job, owner = tenant) {
      await asGateway(owner, "cancel", (tx) => cancelJob(tx, { job, reason: "a test" }));
    },
    async controller({ stops = [], tell = false } = {}) {
      const child = spawnController(scope, { shared, stops, tell });
      const { port, holder } = await child.heard("up");
      relay.point(port);
      return { ...child, holder };
    },
    marks: (job) => readMarks(markFile, job),
  };
}

export async function readMarks(markFile: string, job?: JobId): Promise<string[]> {
  const text = await readFile(markFile, "utf8").catch(() => "");
  const lines = text.split("\n").filter((line) => line !== "");
  return job === undefined ? lines : lines.filter((line) => line.startsWith(job));
}

/** A loaded machine takes its time. */
const patienceMs = 90_000;
const program = resolve(import.meta.dirname, "../fixtures/controller-process.ts");
const compileCache = resolve(import.meta.dirname, "../../node_modules/.cache/holdfast-tests");

function spawnController(scope: ArenaScope, task: ControllerTask): Omit<ControllerProcess, "holder"> {
  const child: ChildProcess = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", program], {
    stdio: ["pipe", "pipe", "inherit"],
    env: { PATH: process.env["PATH"], NODE_COMPILE_CACHE: compileCache },
  });
  const { stdin, stdout, pid } = child;
  if (stdin === null || stdout === null || pid === undefined) throw new Error("a controller did not start");
  stdin.on("error", () => undefined);
  const ended = new Promise<number | NodeJS.Signals | null>((done) => {
    child.once("close", (code, signal) => done(code ?? signal));
  });
  let over = false;
  void ended.then(() => {
    over = true;
  });
  scope.after(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const news: ControllerNews[] = [];
  createInterface(stdout).on("line", (line) => news.push(JSON.parse(line) as ControllerNews));
  stdin.write(`${JSON.stringify(task)}\n`);
  return {
    pid,
    news,
    ended,
    async heard(is, test = () => true) {
      type Wanted = Extract<ControllerNews, { is: typeof is }>;
      const found = () => news.find((one): one is Wanted => one.is === is && test(one as Wanted));
      const look = () => found() ?? (over ? "ended" : null);
      const word = await until(`controller ${pid} says ${is}`, look, patienceMs);
      if (word !== "ended") return word;
      throw new Error(`controller ${pid} ended before it said ${is}: ${JSON.stringify(news.slice(-5))}`);
    },
    signal: (signal) => void child.kill(signal),
    go: () => void stdin.write("go\n"),
    async close() {
      stdin.end();
      await ended;
    },
  };
}
