import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { errorCatalogue } from "../src/wire/errors.ts";
import { exitCodes } from "../src/wire/exit-codes.ts";

const path = join(resolve(import.meta.dirname, ".."), "docs/reference/errors.md");
const rows = (await readFile(path, "utf8"))
  .split("\n")
  .filter((line) => line.startsWith("| `"))
  .map((line) =>
    line
      .slice(2, -2)
      .split(" | ")
      .map((cell) => cell.replaceAll("\\|", "|")),
  );

test("every error code is documented as it is, and every documented code exists", () => {
  const documented = rows.filter((cells) => cells.length === 5);
  const expected = Object.entries(errorCatalogue).map(([code, { status, retryable, title, next }]) => [
    `\`${code}\``,
    String(status),
    retryable ? "yes" : "no",
    title,
    next,
  ]);
  assert.deepEqual(documented, expected);
});

test("every exit code is documented, and every documented one exists", () => {
  const documented = rows.filter((cells) => cells.length === 3).map(([name, number]) => [name, number]);
  assert.deepEqual(
    documented,
    Object.entries(exitCodes).map(([name, number]) => [`\`${name}\``, String(number)]),
  );
});
