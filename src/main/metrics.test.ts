import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Load } from "./load.store.ts";
import { type MetricSources, metricTable, openMetrics } from "./metrics.ts";
import type { WorkLoad } from "./work-load.store.ts";

const load: Load = {
  pools: [{ pool: "default", slots: 2, used: 1, waiting: 3 }],
  active: 1,
  finished: 4,
  unattended: 0,
  unproven: 1,
};
const workLoad: WorkLoad = {
  items: new Map([
    ["pending", 7],
    ["suspended", 1],
  ]),
  oldestDueSeconds: 2.5,
  unattended: 1,
  circuitsOpen: 2,
  quarantined: new Map([["expired", 3]]),
};
const sources: MetricSources = {
  load: () => Promise.resolve(load),
  workLoad: () => Promise.resolve(workLoad),
  waitingMax: 1000,
  attending: () => 5,
  held: () => new Map([["execution", 5]]),
  loops: () =>
    new Map([
      ["lookout", 0.5],
      ["sweep", null],
    ]),
};
const open = () => openMetrics({ release: "1.2.3", process: "controller" });

test("docs/reference/metrics.md names every metric with its kind and labels, and no other", () => {
  const text = readFileSync(join(import.meta.dirname, "../../docs/reference/metrics.md"), "utf8");
  const rows = [...text.matchAll(/^\| `(holdfast_\w+)` \| (\w+) \| (.*?) \|/gm)].map(
    ([, name, kind, labels = ""]) => ({ name, kind, labels: labels.match(/\w+/g) ?? [] }),
  );
  const table = Object.values(metricTable).map(({ name, kind, labels }) => ({ name, kind, labels }));
  assert.deepEqual(rows, table);
});

test("docs/operations.md says of every metric what to watch for", () => {
  const text = readFileSync(join(import.meta.dirname, "../../docs/operations.md"), "utf8");
  const [, table = ""] = text.split("## What metrics mean");
  const cells = [...table.matchAll(/^\| (`holdfast_.*?) \|/gm)].flatMap(
    ([, cell = ""]) => cell.match(/\w+/g) ?? [],
  );
  assert.deepEqual(new Set(cells), new Set(Object.values(metricTable).map(({ name }) => name)));
});

test("a reading says what waits, runs and gets on, and nothing of whom or what", async () => {
  const metrics = open();
  metrics.refused("fenced");
  metrics.lost("execution");
  metrics.tried("delivered");
  metrics.tried("pending");
  metrics.requests("kubernetes")({ verb: "create", resource: "pods" }, 201);
  metrics.requests("kubernetes")({ verb: "get", resource: "pods" }, 0);
  const { text, contentType } = await metrics.read(sources);
  assert.match(contentType, /^text\/plain; version=0\.0\.4/);
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  assert.deepEqual(lines.sort(), [
    "holdfast_attempts_attended 5",
    "holdfast_attempts_unattended 0",
    'holdfast_attempts{state="active"} 1',
    'holdfast_attempts{state="finished"} 4',
    "holdfast_database_up 1",
    'holdfast_deliveries_total{result="delivered"} 1',
    'holdfast_deliveries_total{result="failed"} 1',
    'holdfast_fence_refusals_total{code="fenced"} 1',
    'holdfast_info{release="1.2.3",process="controller"} 1',
    "holdfast_jobs_waiting_max 1000",
    'holdfast_jobs_waiting{pool="default"} 3',
    'holdfast_leases_held{kind="execution"} 5',
    'holdfast_leases_lost_total{kind="execution"} 1',
    'holdfast_loop_age_seconds{loop="lookout"} 0.5',
    'holdfast_runtime_requests_total{runtime="kubernetes",verb="create",resource="pods",status="201"} 1',
    'holdfast_runtime_requests_total{runtime="kubernetes",verb="get",resource="pods",status="none"} 1',
    "holdfast_sandboxes_stop_unproven 1",
    'holdfast_slots_used{pool="default"} 1',
    'holdfast_slots{pool="default"} 2',
    "holdfast_work_circuits_open 2",
    'holdfast_work_items{state="pending"} 7',
    'holdfast_work_items{state="suspended"} 1',
    "holdfast_work_lanes_unattended 1",
    "holdfast_work_oldest_due_seconds 2.5",
    'holdfast_work_quarantined{reason="expired"} 3',
  ]);
});

test("while the database does not answer, the store's numbers are absent and not the last ones", async () => {
  const away = () => Promise.reject(new Error("away"));
  const { text } = await open().read({ ...sources, load: away, workLoad: away });
  assert.match(text, /^holdfast_database_up 0$/m);
  assert.match(text, /^holdfast_attempts_attended 5$/m);
  assert.doesNotMatch(
    text,
    /^holdfast_(slots|jobs_waiting\{|attempts\{|attempts_unattended|sandboxes|work_)/m,
  );
});

test("however often it is read, the store is asked once a second", async () => {
  let asked = 0;
  const counted = () => {
    asked += 1;
    return Promise.resolve(load);
  };
  const metrics = open();
  await Promise.all(Array.from({ length: 20 }, () => metrics.read({ ...sources, load: counted })));
  assert.equal(asked, 1);
});
