import assert from "node:assert/strict";
import { test } from "node:test";
import { parseAgentFile } from "./agent-file.ts";
import { isHoldfastError } from "./holdfast-error.ts";

const file = (spec: string) =>
  `apiVersion: holdfast/v1\nkind: Agent\nmetadata: { name: notes }\nspec:\n  command: [run]\n${spec}`;

function mistakesOf(text: string): string[] {
  try {
    parseAgentFile(text, "agent.yaml");
    return [];
  } catch (error) {
    if (!isHoldfastError(error)) throw error;
    return error.fields.map(({ message, line, column }) => `${line}:${column} ${message}`);
  }
}

test("an agent file's mistakes are all told at once, each with its place", () => {
  const text = file(
    "  timeout: 1m\n  grace: 2m\n  destinations:\n    - { name: a, url: 'https://a' }\n    - { name: a, url: 'https://b' }\n    - { name: inbox, url: 'https://c' }\n",
  );
  assert.deepEqual(mistakesOf(text), [
    "7:10 must be shorter than the timeout of 1m, found 2m",
    "10:15 destination 1 has the name `a` already",
    "11:15 `inbox` is the built-in one",
  ]);
  assert.deepEqual(mistakesOf(file("  timeout: 4h\n")), [
    "6:12 must be more than 0s and at most 3h, found 4h",
  ]);
  assert.deepEqual(
    mistakesOf(file(`  env: { A: "${"x".repeat(60_000)}", B: "${"y".repeat(6_000)}" }\n`)).length,
    1,
  );
  assert.deepEqual(mistakesOf(file("  timeout: 1m\n  grace: 59s\n")), []);
});
