import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { join, relative, resolve } from "node:path";
import { test } from "node:test";
import { type SourceFile, violations } from "./support/architecture.ts";

const root = resolve(import.meta.dirname, "..");

async function readSources(): Promise<SourceFile[]> {
  const entries = await readdir(join(root, "src"), { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && /\.(ts|tsx|mts|mjs|sql)$/.test(entry.name));
  return Promise.all(
    files.map(async (entry) => {
      const path = join(entry.parentPath, entry.name);
      return { path: relative(root, path).replaceAll("\\", "/"), text: await readFile(path, "utf8") };
    }),
  );
}

const sources = await readSources();

test("imports follow the order of the architecture, and every file keeps its limits", () => {
  assert.deepEqual(violations(sources), []);
});

/** What the checker says of one planted file beside the real ones. */
function planted(path: string, text: string): string[] {
  const real = sources.filter((file) => file.path !== path);
  const before = new Set(violations(real));
  return violations([...real, { path, text }]).filter((line) => !before.has(line));
}

for (const [what, path, text, expected] of [
  ["a later part", "src/core/planted.ts", 'import { x } from "../cli/schema.ts";', "core comes before cli"],
  [
    "a later part's type",
    "src/wire/planted.ts",
    'import type {\n  X,\n} from "../core/ids.ts";',
    "wire comes before",
  ],
  [
    "what is exported again",
    "src/core/planted.ts",
    'export * from "../http/server.ts";',
    "core comes before http",
  ],
  [
    "a part beside it",
    "src/executions/planted.ts",
    'import "../work/plan.ts";',
    "executions comes before work",
  ],
  [
    "another runtime",
    "src/runtimes/process/planted.ts",
    'import "../kubernetes/pod.ts";',
    "process stands beside",
  ],
  [
    "what is loaded later",
    "src/core/planted.ts",
    'const x = await import("../main.ts");',
    "core comes before main",
  ],
  [
    "a test's support",
    "src/core/planted.ts",
    'import "../../test/support/database.ts";',
    "nothing outside src",
  ],
  ["more than wire", "src/client/planted.ts", 'import "../core/ids.ts";', "client imports wire only"],
  ["more than a client", "src/console/planted.tsx", 'import "../core/ids.ts";', "wire and client only"],
  ["Node in wire", "src/wire/planted.ts", 'import "node:fs";', "runs without Node"],
  [
    "a process that applies migrations",
    "src/main.ts",
    'import "./core/schema/migrate.ts";',
    "only cli and dev",
  ],
  ["the driver", "src/executions/planted.ts", 'import type { Client } from "pg";', "core\\/postgres"],
  ["the HTTP framework", "src/core/planted.ts", 'import fastify from "fastify";', "src\\/http"],
  [
    "a Kubernetes type",
    "src/core/planted.ts",
    'import type { V1Pod } from "@kubernetes/client-node";',
    "kubernetes",
  ],
  ["the environment", "src/core/planted.ts", "export const home = process.env.HOME;", "reads process.env"],
  ["a name that says nothing", "src/core/lease-helpers.ts", "", "the name says nothing"],
  ["a name of types", "src/core/types.ts", "", "the name says nothing"],
  ["a name that can't be guessed", "src/core/LeaseStore.ts", "", "not kebab-case"],
  ["a part that nobody planned", "src/services/planted.ts", "", "belongs to no part"],
  ["a long file", "src/core/planted.ts", "\n".repeat(501), "501 lines"],
  ["a statement file alone", "src/core/planted.sql", "", "npm run generate"],
] as const) {
  test(`the checker finds ${what}`, () => {
    const [line, ...others] = planted(path, text);
    assert.deepEqual(others, []);
    assert(line?.startsWith(`${path}: `) && line.includes(expected), line);
  });
}

test("the checker finds a cycle, once", () => {
  const file = (path: string, target: string): SourceFile => ({
    path,
    text: `import type { X } from "${target}";`,
  });
  const files = [
    file("src/core/c.ts", "./a.ts"),
    file("src/core/a.ts", "./b.ts"),
    file("src/core/b.ts", "./c.ts"),
  ];
  assert.deepEqual(violations(files), [
    "src/core/a.ts → src/core/b.ts → src/core/c.ts → src/core/a.ts: a cycle",
  ]);
});

test("the checker allows what the order allows, and reads no comment or string as code", () => {
  for (const [path, text] of [
    ["src/executions/planted.ts", 'import "../sandboxes/sandbox.ts";\nimport "../core/ids.ts";'],
    ["src/executions/http.ts", 'import type { FastifyInstance } from "fastify";'],
    [
      "src/core/planted.ts",
      '// import "../cli/schema.ts";\n/* process.env.HOME */\nexport const a = "https://b";',
    ],
    ["src/core/planted.test.ts", 'import { testDatabase } from "../../test/support/database.ts";'],
    ["src/sandboxes/phase-helper.ts", ""],
  ] as const) {
    assert.deepEqual(planted(path, text), [], path);
  }
});
