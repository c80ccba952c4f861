import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { attemptTransitions } from "../src/executions/attempt.ts";
import { jobTransitions } from "../src/executions/job.ts";
import { sandboxTransitions } from "../src/sandboxes/sandbox.ts";
import { activationTransitions } from "../src/sessions/activation.ts";

type Table = Readonly<Record<string, Readonly<Record<string, string | null>>>>;

const pages = readFileSync(join(import.meta.dirname, "../ARCHITECTURE.md"), "utf8");

/** The edges of the diagram under a heading, as `from > to: event`. */
function drawn(heading: string, text: string): string[] {
  const section = text.split(/^### /m).find((part) => part.startsWith(`${heading}\n`)) ?? "";
  const [, diagram = ""] = /```mermaid\nstateDiagram-v2\n(.*?)```/s.exec(section) ?? [];
  return [...diagram.matchAll(/^ {2}(\w+) --> (\w+): (\w+)$/gm)]
    .map(([, from, to, event]) => `${from} > ${to}: ${event}`)
    .sort();
}

function tabled(table: Table): string[] {
  return Object.entries(table)
    .flatMap(([from, events]) =>
      Object.entries(events).flatMap(([event, to]) => (to === null ? [] : [`${from} > ${to}: ${event}`])),
    )
    .sort();
}

const machines: Readonly<Record<string, Table>> = {
  Job: jobTransitions,
  Attempt: attemptTransitions,
  Sandbox: sandboxTransitions,
  Activation: activationTransitions,
};

for (const [name, table] of Object.entries(machines)) {
  test(`the picture of ${name} shows exactly what its table allows`, () => {
    const edges = drawn(name, pages);
    assert.ok(edges.length > 1, "the picture was found");
    assert.deepEqual(edges, tabled(table));
  });
}

test("an edge that is missing in a picture is seen", () => {
  const edge = "  active --> finished: finish\n";
  assert.ok(pages.includes(edge));
  assert.notDeepEqual(drawn("Attempt", pages.replace(edge, "")), tabled(attemptTransitions));
});
