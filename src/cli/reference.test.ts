import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import pc from "picocolors";
import { parseConfig } from "../config.ts";
import { exitCodes } from "../wire/exit-codes.ts";
import { completerName } from "./complete.ts";
import { createProgram } from "./program.ts";
import { visible } from "./visible.ts";

const text = readFileSync(join(import.meta.dirname, "../../docs/reference/cli.md"), "utf8");

test("docs/reference/cli.md names every exit code, and no other", () => {
  const rows = [...text.matchAll(/^\| (\d+) \| `([a-z_]+)` \|/gm)].map(([, code, name]) => [
    name,
    Number(code),
  ]);
  assert.deepEqual(rows, Object.entries(exitCodes));
});

test("docs/reference/cli.md names every command, and no other", () => {
  const colors = pc.createColors(false);
  const nothing = () => Promise.resolve();
  const terminal = {
    out: nothing,
    err: nothing,
    live: false,
    columns: 80,
    rows: 24,
    colors,
    errorColors: colors,
  };
  const context = {
    config: parseConfig({}),
    terminal: { ...terminal, foreign: visible },
    version: "0.0.0",
    directory: "/",
    now: () => 0,
  };
  const names = createProgram(context, "0")
    .commands.map((command) => command.name())
    .filter((name) => name !== completerName);
  const [table = ""] = text.split("**Ids.**");
  const rows = [...table.matchAll(/^\| (`.*?`) \|/gm)].flatMap(([, cell = ""]) =>
    [...cell.matchAll(/`([a-z-]+)/g)].map(([, name]) => name),
  );
  assert.deepEqual(new Set(rows), new Set(names));
});
