import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { type TestContext, test } from "node:test";
import * as fc from "fast-check";
import { drift, type Generated, generate } from "../scripts/statements/generate.ts";
import { lex, SqlSyntaxError } from "../scripts/statements/lexer.ts";
import { parseStatements } from "../scripts/statements/parser.ts";
import { testDatabase, withClient } from "./support/database.ts";

const root = resolve(import.meta.dirname, "..");

test("every statement's types are what the server says of the migrated schema", async (t) => {
  const { superuser } = await testDatabase(t);
  const { modules, problems } = await withClient(superuser, async (client) => {
    await client.query("set search_path = pg_catalog, pg_temp");
    return generate(root, client);
  });
  assert.deepEqual(problems, []);
  assert.deepEqual(await drift(root, modules), [], "run npm run generate");
});

/** The only statement of a file. */
function parse(body: string, head = "-- name: it :many") {
  const [statement] = parseStatements(`${head}\n${body}`);
  assert(statement !== undefined);
  return statement;
}

test("a parameter is rewritten where it is one, in the order of first use", () => {
  const { text, parameters } = parse("select :b::int8, :a, :b + 1 where x = any(:list);");
  assert.equal(text, "select $1::int8, $2, $1 + 1 where x = any($3)");
  assert.deepEqual(
    parameters.map(({ name }) => name),
    ["b", "a", "list"],
  );
});

test("what looks like a parameter inside text, names and comments stays as it is", () => {
  for (const kept of [
    "':a'",
    "'it''s :a'",
    "E'\\' :a'",
    "e'\\\\'",
    "U&':a'",
    '":a"',
    '"a "" :a"',
    "$$ :a $$",
    "$tag$ :a $$ $other$ :a $tag$",
    "x::text",
    "y[1:2]",
    "y[low : high]",
    "f(name := 1)",
    "e$a$b",
  ]) {
    assert.deepEqual(
      [parse(`select ${kept};`).text, parse(`select ${kept};`).parameters],
      [`select ${kept}`, []],
    );
  }
});

test("comments are left out of what is sent, and never join two words", () => {
  const { text, parameters } = parse(
    "select 1 -- :a 'quote\n  -- whole line; \"\n, 2/* :b /* nested */ ; */from x -- end\n;",
  );
  assert.equal(text, "select 1\n, 2 from x");
  assert.deepEqual(parameters, []);
});

test("a semicolon inside text does not end a statement, and a second statement is refused", () => {
  assert.equal(parse("select ';', $$;$$;").text, "select ';', $$;$$");
  assert.throws(() => parse("select 1; select 2;"), { message: "it is more than one statement" });
  assert.throws(() => parse("select 1"), { message: "it does not end with a semicolon" });
});

test("the comment lines around the name are its documentation; the file's prose is not", () => {
  const [first, second] = parseStatements(
    "-- About the file.\n\n-- One.\n-- name: first :one\n-- null: a\n-- Two.\nselect :a;\n-- Three.\n-- name: second :exec\nselect 1;\n",
  );
  assert.deepEqual(first?.doc, ["One.", "Two."]);
  assert.deepEqual(first?.parameters, [{ name: "a", nullable: true }]);
  assert.deepEqual(second?.doc, ["Three."]);
});

test("marks on aliases say whether a column can be null, and are not sent", () => {
  const { text, declared } = parse('select count(*) as "total!", x as "x?", y as "y";');
  assert.equal(text, 'select count(*) as "total", x as "x", y as "y"');
  assert.deepEqual(
    [...declared],
    [
      ["total", "required"],
      ["x", "nullable"],
    ],
  );
});

test("what an outer join can leave empty is known by its relation, or not at all", () => {
  const joined = (sql: string) => parse(`select 1 from a ${sql};`).outerJoined;
  assert.deepEqual(joined("join b on true"), []);
  assert.deepEqual(joined("left join holdfast.b on true left outer join c on true"), ["holdfast.b", "c"]);
  assert.deepEqual(joined("left join (select 1) b on true"), [null]);
  assert.deepEqual(joined("full join b on true"), [null]);
  assert.deepEqual(parse("select left(x, 1) from a;").outerJoined, []);
});

test("what is malformed is refused with its line", () => {
  for (const [source, line, message] of [
    ["select 1;", 1, /before the first/],
    ["\n-- name: Bad :one\nselect 1;", 2, /camelCase/],
    ["-- name: it :all\nselect 1;", 1, /camelCase/],
    ["-- name: it :one\n-- null: missing\nselect 1;", 1, /no parameter :missing/],
    ["-- name: it :one\n-- null a, b\n--null:a\nselect :a;", 3, /-- null: first/],
    ["-- name: it :one\n\n", 1, /no SQL/],
    ["-- name: it :one\nselect $1;", 2, /name the parameter/],
    ["-- name: it :one\nselect 1;\n-- name: it :one\nselect 1;", 3, /twice/],
    ["-- name: it :one\nselect 'open;", 2, /string is not closed/],
    ["-- name: it :one\n\nselect /* /* open */ 1;", 3, /comment is not closed/],
    ["-- name: it :one\nselect $a$ open $b$;", 2, /dollar-quoted/],
  ] as const) {
    assert.throws(
      () => parseStatements(source),
      (error) => error instanceof SqlSyntaxError && error.line === line && message.test(error.message),
      source,
    );
  }
});

const quoted = fc.oneof(
  fc.string().map((text) => `'${text.replaceAll("'", "''")}'`),
  fc.string().map((text) => `E'${text.replaceAll(/[\\']/g, "\\$&")}'`),
  fc.string({ minLength: 1 }).map((text) => `"${text.replaceAll('"', '""')}"`),
  fc.string().map((text) => `$q$${text.replaceAll("$", "")}$q$`),
  fc.string().map((text) => `/*${text.replaceAll(/[*/]/g, "")}*/`),
  fc.string().map((text) => `--${text.replaceAll("\n", "")}\n`),
);

test("property: the tokens of any text are that text, and a quoted piece is one of them", () => {
  fc.assert(
    fc.property(fc.array(quoted, { maxLength: 8 }), (pieces) => {
      const tokens = lex(pieces.join(" "));
      assert.equal(tokens.map(({ text }) => text).join(""), pieces.join(" "));
      const kept = tokens.filter(({ kind }) => kind !== "space").map(({ text }) => text);
      assert.deepEqual(
        kept,
        pieces.map((piece) => piece.replace(/\n$/, "")),
      );
    }),
  );
});

test("property: any text at all is read to its end or refused", () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom(...Array.from("aeE$'\"\\-/*:;_1 \n[")) }), (text) => {
      try {
        assert.equal(
          lex(text)
            .map((token) => token.text)
            .join(""),
          text,
        );
      } catch (error) {
        assert(error instanceof SqlSyntaxError);
      }
    }),
    { numRuns: 1000 },
  );
});

async function generated(t: TestContext, sql: string): Promise<Generated> {
  const { superuser } = await testDatabase(t);
  const folder = await mkdtemp(join(tmpdir(), "holdfast-statements-"));
  t.after(() => rm(folder, { recursive: true }));
  const path = join(folder, "src/executions/sample.sql");
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, sql);
  return withClient(superuser, (client) => generate(folder, client));
}

test("parameters and columns have the database's types, and null only where it can be", async (t) => {
  const { modules, problems } = await generated(
    t,
    `-- Prose of the file.

-- What it is \`for\`.
-- name: sample :many
-- null: reason
select j.job_id, j.created_at, j.priority, j.resource_version, j.labels, j.finished_at, a.name,
  count(*) over () as "total!", array_agg(j.created_at) over () as times, null::bytea as bytes
from holdfast.jobs j left join holdfast.artifacts a using (tenant_id, job_id)
where j.tenant_id = :tenant and j.created_at < :before and j.job_id = any(:ids) and j.labels @> :labels
  and j.cancel_reason is not distinct from :reason and '\`\${x}\\' <> '';

-- name: touch :exec
update holdfast.jobs set labels = '{}';
`,
  );
  assert.deepEqual(problems, []);
  assert.deepEqual(modules, [
    {
      path: "src/executions/sample.sql.ts",
      text: `// Generated by npm run generate from sample.sql; do not edit.
import { statement } from "../core/postgres/statement.ts";
import type { Instant } from "../core/time.ts";

export interface SampleParams {
  readonly tenant: string;
  readonly before: Instant;
  readonly ids: readonly string[];
  readonly labels: unknown;
  readonly reason: string | null;
}

export interface SampleRow {
  readonly job_id: string;
  readonly created_at: Instant;
  readonly priority: number;
  readonly resource_version: bigint;
  readonly labels: unknown;
  readonly finished_at: Instant | null;
  readonly name: string | null;
  readonly total: bigint;
  readonly times: Instant[] | null;
  readonly bytes: Buffer | null;
}

/** What it is \`for\`. */
export const sample = statement<SampleParams, SampleRow, "many">(
  "sample.sample",
  "many",
  ["tenant","before","ids","labels","reason"],
  ["plain","instant","plain","json","plain"],
  \`select j.job_id, j.created_at, j.priority, j.resource_version, j.labels, j.finished_at, a.name,
  count(*) over () as "total", array_agg(j.created_at) over () as times, null::bytea as bytes
from holdfast.jobs j left join holdfast.artifacts a using (tenant_id, job_id)
where j.tenant_id = $1 and j.created_at < $2 and j.job_id = any($3) and j.labels @> $4
  and j.cancel_reason is not distinct from $5 and '\\\`\\\${x}\\\\' <> ''\`,
);

export type TouchParams = Record<string, never>;

export const touch = statement<TouchParams, never, "exec">(
  "sample.touch",
  "exec",
  [],
  [],
  \`update holdfast.jobs set labels = '{}'\`,
);
`,
    },
  ]);
});

test("what can't be typed is a problem with file and line, and the others are still looked at", async (t) => {
  const block = (name: string, cardinality: string, sql: string) =>
    `-- name: ${name} :${cardinality}\n${sql};\n\n`;
  const { problems } = await generated(
    t,
    block("unnamed", "one", "select 1") +
      block("twice", "one", "select 1 as a, 2 as a") +
      block("interval", "one", "select interval '1 s' as length") +
      block("empty", "one", "update holdfast.jobs set labels = '{}'") +
      block("typo", "one", "select nothing from holdfast.jobs") +
      block("mark", "one", 'select 1 as a order by "b!"'),
  );
  assert.deepEqual(problems, [
    "src/executions/sample.sql:1: unnamed: name the column ?column?: as …",
    "src/executions/sample.sql:4: twice: two columns are named a",
    "src/executions/sample.sql:7: interval: the column length has type interval, which codecs.ts lacks",
    "src/executions/sample.sql:10: empty: :one gives no column; use :exec, or returning",
    'src/executions/sample.sql:13: typo: column "nothing" does not exist at "nothing from holdfast.jobs"',
    'src/executions/sample.sql:16: mark: column "b" does not exist at ""b""',
  ]);
});

test("a module that differs or that no SQL stands behind is drift", async (t) => {
  const { modules } = await generated(t, "-- name: it :one\nselect 1 as a;");
  const folder = await mkdtemp(join(tmpdir(), "holdfast-drift-"));
  t.after(() => rm(folder, { recursive: true }));
  await mkdir(join(folder, "src/executions"), { recursive: true });
  await writeFile(join(folder, "src/left-over.sql.ts"), "");
  assert.deepEqual(await drift(folder, modules), ["src/executions/sample.sql.ts", "src/left-over.sql.ts"]);
  for (const { path, text } of modules) await writeFile(join(folder, path), text);
  assert.deepEqual(await drift(folder, modules), ["src/left-over.sql.ts"]);
});
