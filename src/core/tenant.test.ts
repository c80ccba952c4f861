import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { covers, isGrantedScope, scopes } from "./tenant.ts";

test("a scope may be narrowed to one resource, and only that", () => {
  for (const text of ["*", "operator", "jobs:read", "jobs:read:01976b2c-0000-7000-8000-000000000000"]) {
    assert.ok(isGrantedScope(text), text);
  }
  for (const text of [
    "jobs",
    "jobs:fly",
    "jobs:read:",
    "jobs:read:a:b",
    "*:read:a",
    "operator:x:y",
    "jobs:read:a b",
  ]) {
    assert.ok(!isGrantedScope(text), text);
  }
});

test("G1: what is everything of a tenant is not the installation, and one resource is not another", () => {
  const granted = (...words: string[]) => new Set(words);
  assert.ok(covers(granted("*"), "jobs:write", null));
  assert.ok(!covers(granted("*"), "operator", null));
  assert.ok(covers(granted("jobs:read:a"), "jobs:read", "a"));
  assert.ok(!covers(granted("jobs:read:a"), "jobs:read", "b"));
  assert.ok(!covers(granted("jobs:read:a"), "jobs:read", null));
  assert.ok(!covers(granted("jobs:read:a"), "jobs:write", "a"));
});

test("docs/reference/http.md names every scope", () => {
  const text = readFileSync(new URL("../../docs/reference/http.md", import.meta.url), "utf8");
  for (const scope of scopes) assert.ok(text.includes(`\`${scope}\``), scope);
});
