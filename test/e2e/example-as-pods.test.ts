import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { exampleJob, portableJob, prepareRepositories } from "../../examples/engine-module/prepare.ts";
import type { Runtime } from "../../src/core/runtime.port.ts";
import { kubernetesRuntime } from "../../src/runtimes/kubernetes/kubernetes-runtime.ts";
import type { JobSubmission } from "../../src/wire/job.ts";
import { Cluster } from "../support/kubernetes/cluster.ts";
import { type StackScope, testStack } from "../support/stack.ts";
import { until } from "../support/until.ts";

/** A double's node is this machine, whose `node` may be an old one. */
function withThisNode(job: Record<string, unknown>): JobSubmission {
  const change = (value: unknown): unknown =>
    Array.isArray(value) && value[0] === "node" ? [process.execPath, ...value.slice(1)] : value;
  return JSON.parse(JSON.stringify(job), (key, value) =>
    key === "command" ? change(value) : (value as unknown),
  ) as JobSubmission;
}

/** What one job of three phases takes of an API server, by verb of the Role. Docs say what it took; this is the most. */
const most: Readonly<Record<string, number>> = {
  "create pods": 3,
  "delete pods": 3,
  "get pods": 100,
  "get pods/log": 15,
  "list pods": 6,
  "patch pods": 9,
  "watch pods": 6,
};

describe("the example, as pods on the double", () => {
  const hooks: (() => void | Promise<void>)[] = [];
  const scope: StackScope = { after: (hook) => void hooks.push(hook) };
  const counts = new Map<string, number>();
  let cluster: Cluster;
  let asPods: Built;
  let asProcesses: Built;

  type Built = Awaited<ReturnType<typeof build>>;

  /** A controller of its own, with the given runtime, takes the job to its end. */
  async function build(job: JobSubmission, runtimeFor?: (installation: string) => Runtime) {
    const stack = await testStack(scope);
    const foundation = await stack.foundation("controller");
    const runtime = runtimeFor?.(stack.installation);
    await stack.controller(foundation, runtime === undefined ? {} : { runtime });
    const id = await stack.submit(foundation, job);
    const ended = await until(
      "the attempt is cleaned",
      async () => {
        const [row] = await stack.rows<{ state: string; outcome: string; failure_message: string | null }>(
          "select state, outcome, failure_message from holdfast.execution_attempts where job_id = $1",
          [id],
        );
        return row?.state === "cleaned" ? row : null;
      },
      120_000,
    );
    const artifacts = await stack.rows<{ name: string; sha256: string; bytes: string }>(
      "select name, sha256, bytes from holdfast.artifacts where job_id = $1",
      [id],
    );
    return { ...ended, artifacts };
  }

  before(async () => {
    const folder = await mkdtemp(join(tmpdir(), "hf-example-pods-"));
    hooks.push(() => rm(folder, { recursive: true }));
    await prepareRepositories(folder);
    const local = await exampleJob({ repositories: folder });
    const portable = await portableJob(local, folder);
    cluster = await Cluster.start();
    hooks.push(() => cluster.close());
    const pods = (installation: string) =>
      kubernetesRuntime({
        connection: cluster.connection(),
        namespace: "sandboxes",
        installation,
        pods: { image: "registry.test/node-git:1" },
        onRequest({ verb, resource }) {
          const call = `${verb} ${resource}`;
          counts.set(call, (counts.get(call) ?? 0) + 1);
        },
      });
    [asPods, asProcesses] = await Promise.all([
      build(withThisNode(portable), pods),
      build(withThisNode(local)),
    ]);
  });
  after(async () => {
    for (const hook of hooks) await hook();
  });

  test("E16 E20: it gives the same artifact as with processes, to the bit", () => {
    assert.equal(asPods.outcome, "succeeded", asPods.failure_message ?? "");
    assert.equal(asPods.artifacts.length, 1);
    assert.deepEqual(asPods.artifacts, asProcesses.artifacts);
  });

  test("G5: three phases take few requests of the API server, and only those that the Role allows", (t) => {
    const all = [...counts.values()].reduce((sum, count) => sum + count, 0);
    const words = [...counts].sort(([one], [other]) => one.localeCompare(other));
    t.diagnostic(`${all} requests: ${words.map(([call, count]) => `${call} ${count}`).join(", ")}`);
    assert.equal(cluster.requests.length, all);
    for (const [call, count] of counts) {
      const bound = most[call];
      assert.ok(bound !== undefined && count <= bound, `${call}: ${count}, at most ${bound ?? 0}`);
    }
    assert.deepEqual([counts.get("create pods"), counts.get("delete pods")], [3, 3]);
  });

  test("docs/operations.md says the most that this allows", async () => {
    const text = await readFile(join(import.meta.dirname, "../../docs/operations.md"), "utf8");
    const rows = [...text.matchAll(/^ *\| (\w+ pods(?:\/log)?) \| \d+ \| (\d+) \|/gm)];
    assert.deepEqual(
      rows.map(([, call, bound]) => [call, Number(bound)]),
      Object.entries(most),
    );
  });
});
