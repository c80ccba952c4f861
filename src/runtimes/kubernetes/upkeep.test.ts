import assert from "node:assert/strict";
import { test } from "node:test";
import { outcomeOf } from "./outcome.ts";
import type { Pod } from "./pod.ts";
import { annotations } from "./pod-marks.ts";
import { nextStep } from "./upkeep.ts";

const created = Date.parse("2026-11-29T16:00:00Z");
const at = (seconds: number) => new Date(created + seconds * 1000).toISOString();
const now = (seconds: number) => created + seconds * 1000;

function podWith(
  marks: Readonly<Record<string, string>>,
  spec: Partial<Pod["spec"]>,
  status: Pod["status"] = {},
): Pod {
  const metadata = {
    name: "p",
    uid: "u",
    resourceVersion: "1",
    creationTimestamp: at(0),
    annotations: marks,
  };
  return { metadata, spec: { containers: [{ name: "main" }], ...spec }, status };
}

const holding = { [annotations.holdLimitMs]: "60000" };
const held = { schedulingGates: [{ name: "holdfast.dev/held" }] };
const due = { [annotations.deadline]: at(100) };
const onNode = { nodeName: "node", activeDeadlineSeconds: 100, terminationGracePeriodSeconds: 5 };
const waiting = (reason: string) => ({
  phase: "Pending",
  startTime: at(1),
  containerStatuses: [{ name: "main", state: { waiting: { reason, message: "why" } } }],
});

test("E21: what is held is ended when its hold limit has passed", () => {
  const pod = podWith(holding, held);
  assert.equal(nextStep(pod, now(59)).do, "nothing");
  assert.equal(nextStep(pod, now(60)).do, "delete");
});

test("E7: what somebody changed while it was held is ended, as nobody will release it", () => {
  const { metadata, ...rest } = podWith(holding, held);
  const changed = { ...rest, metadata: { ...metadata, generation: 2 } };
  assert.equal(nextStep({ ...rest, metadata: { ...metadata, generation: 1 } }, now(1)).do, "nothing");
  assert.equal(nextStep(changed, now(1)).do, "delete");
  const deleted = { ...changed.metadata, generation: 3, deletionTimestamp: at(1) };
  assert.match(outcomeOf({ ...changed, metadata: deleted }).message, /changed by somebody else/);
  const ours = { ...changed.metadata, deletionTimestamp: at(1) };
  assert.doesNotMatch(outcomeOf({ ...changed, metadata: ours }).message, /changed/);
});

test("E4: what no node took is ended when its deadline has passed", () => {
  const pod = podWith(due, {});
  assert.equal(nextStep(pod, now(99)).do, "nothing");
  assert.equal(nextStep(pod, now(100)).do, "delete");
});

test("E4: a start long after the release lowers what the kubelet allows, and only then", () => {
  const startedAt = (seconds: number) => podWith(due, onNode, { phase: "Pending", startTime: at(seconds) });
  assert.deepEqual(nextStep(startedAt(1), now(31)), { do: "nothing" });
  assert.deepEqual(nextStep(startedAt(30), now(31)), { do: "lower", seconds: 70 });
  assert.deepEqual(nextStep(startedAt(150), now(99)), { do: "lower", seconds: 1 });
});

test("E10: what can't be started is stopped, with the reason for a person", () => {
  for (const reason of ["CreateContainerConfigError", "InvalidImageName", "ErrImageNeverPull"]) {
    const step = nextStep(podWith(due, onNode, waiting(reason)), now(2));
    assert.ok(step.do === "stop" && step.mark.why === "start_failed");
    assert.match(step.mark.message, new RegExp(`main could not be started: ${reason}: why`));
  }
});

test("E10: an image that can't be pulled is given time: its registry may come back", () => {
  const pod = podWith({}, onNode, waiting("ImagePullBackOff"));
  assert.equal(nextStep(pod, now(100)).do, "nothing");
  assert.equal(nextStep(pod, now(122)).do, "stop");
});

test("E8: a stop that hangs before any container was made is ended by a delete, which loses no log", () => {
  const mark = { [annotations.stop]: JSON.stringify({ why: "asked", message: "", at: at(10) }) };
  const pod = podWith(mark, onNode, waiting("ContainerCreating"));
  assert.equal(nextStep(pod, now(24)).do, "nothing");
  assert.equal(nextStep(pod, now(26)).do, "delete");
  const running = { name: "main", state: { running: { startedAt: at(2) } }, containerID: "containerd://1" };
  const ran = podWith(mark, onNode, { ...waiting(""), containerStatuses: [running] });
  assert.equal(nextStep(ran, now(1000)).do, "nothing");
});
