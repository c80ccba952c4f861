import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Observation } from "../../src/core/runtime.port.ts";
import { observationOf } from "../../src/runtimes/kubernetes/observation.ts";
import type { Pod } from "../../src/runtimes/kubernetes/pod.ts";
import { annotations } from "../../src/runtimes/kubernetes/pod-marks.ts";
import { readTrace, type Sighting } from "../support/kubernetes/trace.ts";

/** Recordings leave out the containers of the spec, and our marks, as they were made before there were any. */
function podOf({ object }: Sighting, marks: Readonly<Record<string, string>> = {}): Pod {
  const metadata = { creationTimestamp: "2026-11-29T16:00:00Z", annotations: marks, ...object.metadata };
  const spec = { containers: [{ name: "main" }], ...object.spec };
  // What a recording holds is a part of a pod.
  return { metadata, spec, status: object.status ?? {} } as unknown as Pod;
}

const asked = { [annotations.stop]: JSON.stringify({ why: "asked", message: "", at: "" }) };
const failed = {
  [annotations.stop]: JSON.stringify({ why: "start_failed", message: "it could not start", at: "" }),
};

interface Life {
  readonly trace: string;
  readonly marks?: Readonly<Record<string, string>>;
  readonly kind: string;
  readonly exitCode: number | null;
}

/** What was done to each pod is in the recording's own words (`about`). */
const lives: readonly Life[] = [
  { trace: "pod-exit0", kind: "exited", exitCode: 0 },
  { trace: "pod-exit7", kind: "exited", exitCode: 7 },
  { trace: "pod-stop-term", marks: asked, kind: "stopped", exitCode: 3 },
  { trace: "pod-stop-ignores-term", marks: asked, kind: "stopped", exitCode: 137 },
  { trace: "pod-own-deadline", kind: "deadline", exitCode: 3 },
  { trace: "pod-bad-command", kind: "start_failed", exitCode: null },
  { trace: "pod-config-error", marks: failed, kind: "start_failed", exitCode: null },
  { trace: "pod-imagepull", marks: failed, kind: "start_failed", exitCode: null },
  { trace: "pod-init-fail", kind: "start_failed", exitCode: null },
  { trace: "pod-init-running-stop", marks: asked, kind: "stopped", exitCode: null },
  { trace: "pod-oom", kind: "out_of_memory", exitCode: 9 },
  { trace: "pod-oom-pid1", kind: "out_of_memory", exitCode: 137 },
  { trace: "pod-evict-api", kind: "evicted", exitCode: 3 },
  { trace: "pod-evicted-disk", kind: "evicted", exitCode: 137 },
  { trace: "pod-delete-running", kind: "evicted", exitCode: 3 },
  { trace: "pod-unschedulable", kind: "stopped", exitCode: null },
];

describe("E8, E10: what a real kubelet reported is read as", () => {
  for (const { trace, marks, kind, exitCode } of lives) {
    test(`${trace}: ${kind}, exit code ${exitCode}`, () => {
      const seen = (readTrace(trace).watch ?? []).map((sighting) => ({
        sighting,
        observation: observationOf(podOf(sighting, marks)),
      }));
      const stopped = seen.filter(({ observation }) => observation.state === "stopped");
      // The first proof is the one that a controller records.
      const proof = stopped[0]?.observation;
      assert.ok(proof?.state === "stopped", seen.map(({ observation }) => observation.state).join(" "));
      assert.deepEqual([proof.outcome.kind, proof.outcome.exitCode], [kind, exitCode]);
      for (const { sighting } of stopped) assert.ok(!runs(sighting), "a running container is no proof");
      // The proof never goes away again.
      const first = seen.findIndex(({ observation }) => observation.state === "stopped");
      assert.ok(seen.slice(first).every(({ observation }) => observation.state === "stopped"));
    });
  }
});

describe("E8: a lost node is no proof", () => {
  for (const trace of ["node-kubelet-dies", "node-lost-eviction", "node-reboot"]) {
    test(`${trace}: stopped is only what its kubelet reported as ended`, () => {
      const states = new Map<string, Observation["state"][]>();
      for (const sighting of readTrace(trace).pods ?? []) {
        const { state } = observationOf(podOf(sighting));
        if (state === "stopped") assert.ok(!runs(sighting));
        const name = String(sighting.object.metadata.name);
        states.set(name, [...(states.get(name) ?? []), state]);
      }
      const all = [...states.values()].flat();
      assert.ok(all.includes("stopped"));
      if (trace !== "node-reboot") assert.ok(all.includes("unproven"));
    });
  }

  test("phase Failed, a disruption and a grace of 0, written while the container runs, are unproven", () => {
    const failed = (readTrace("node-lost-eviction").pods ?? []).filter(
      (sighting) => sighting.object.status?.phase === "Failed" && runs(sighting),
    );
    assert.ok(failed.length > 0);
    for (const sighting of failed) assert.notEqual(observationOf(podOf(sighting)).state, "stopped");
  });

  test("a container that exited with 0 did its work, whatever became of its pod", () => {
    const last = (readTrace("node-lost-eviction").pods ?? []).findLast(
      ({ object }) => object.metadata.name === "n2-exit0",
    );
    assert.ok(last !== undefined);
    const seen = observationOf(podOf(last));
    assert.ok(seen.state === "stopped");
    assert.deepEqual([seen.outcome.kind, seen.outcome.exitCode], ["exited", 0]);
  });

  test("E10: what ended by itself and was deleted afterwards still ended by itself", () => {
    const last = (readTrace("pod-exit7").watch ?? []).at(-1);
    assert.ok(last !== undefined);
    const seen = observationOf(podOf(last));
    assert.ok(seen.state === "stopped" && seen.outcome.kind === "exited");
  });

  test("what ran when its node was rebooted is lost", () => {
    const last = (readTrace("node-reboot").pods ?? []).findLast(
      ({ object }) => object.metadata.name === "rb-run",
    );
    assert.ok(last !== undefined);
    const seen = observationOf(podOf(last));
    assert.ok(seen.state === "stopped");
    assert.deepEqual([seen.outcome.kind, seen.outcome.exitCode], ["lost", null]);
  });
});

function runs({ object }: Sighting): boolean {
  return JSON.stringify(object.status?.containerStatuses ?? []).includes('"running":');
}
