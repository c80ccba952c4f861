import assert from "node:assert/strict";
import { test } from "node:test";
import { type LeaseKind, leaseKinds } from "../core/lease.ts";
import { type Neglect, neglectOf } from "./neglect.ts";

const nobody: Neglect = { lines: [], runtimes: new Set(), versions: new Map() };
const charge = { name: "charge", version: "2025.1", runners: 0 };
const next = (kind: LeaseKind, queue: string, alive: Partial<Neglect> = {}) =>
  neglectOf({ ...nobody, ...alive, lines: [{ kind, queue, count: 3n }] }).map((found) => found.next)[0] ?? "";

test("whatever kind it is, what nobody takes names its resource and a process to start", () => {
  for (const kind of leaseKinds) {
    const [found] = neglectOf({ ...nobody, lines: [{ kind, queue: "7.default", count: 1n }] });
    assert.equal(found?.resource, `${kind}/7.default`);
    assert.match(found.problem, /^1 is due .+ nobody takes it$/);
    assert.match(found.next, kind === "work" ? /^Start a worker / : /`holdfast controller( |`)/);
  }
});

test("a line of a runtime wants a controller with that runtime, alive or not", () => {
  for (const kind of ["execution", "session", "activation"] as const) {
    assert.match(
      next(kind, "kubernetes"),
      /^Start a controller .+`holdfast controller --runtime kubernetes`/,
    );
    const other = { runtimes: new Set(["process"]) };
    assert.match(next(kind, "kubernetes", other), /^Start a controller/);
    assert.match(next(kind, "process", other), /is alive: look into its log/);
  }
});

test("what any controller takes is looked for in its log when one is alive", () => {
  const alive = { runtimes: new Set(["process"]) };
  assert.match(next("retention", "log", alive), /^A controller is alive/);
  assert.match(next("publication", "default", alive), /one that can reach the destinations/);
  assert.match(next("publication", "default"), /^Start a controller/);
});

test("a line of Work wants a worker of its version and queue, and no controller", () => {
  const [found] = neglectOf({
    ...nobody,
    lines: [{ kind: "work", queue: "7.bill.ing", count: 2n }],
    versions: new Map([[7, charge]]),
  });
  assert.equal(found?.resource, "work/charge/2025.1/bill.ing");
  assert.equal(
    found.next,
    "Start a worker that runs charge 2025.1 and takes the queue bill.ing: no live process runs this version.",
  );
  const runs = next("work", "7.billing", { versions: new Map([[7, { ...charge, runners: 2 }]]) });
  assert.match(runs, /^2 processes run the version: look into their logs, or start a worker /);
  assert.match(next("work", "8.billing"), /^Start a worker/);
});
