import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as fc from "fast-check";
import { type FieldError, isHoldfastError } from "./holdfast-error.ts";
import { jobLimits } from "./job.ts";
import { parseJobFile } from "./job-file.ts";

const good = `apiVersion: holdfast/v1
kind: Job
metadata: { name: site, labels: { team: web } }
spec:
  deadline: 10m
  sources:
    engine: { repository: ./engine, ref: main }
  phases:
    - { name: fetch, kind: source, command: [git, clone] }
    - { name: build, kind: compile, command: [make], grace: 5s }
    - { name: publish, kind: publish, command: [pack] }
`;

/** What is wrong with a file, as the command line prints it. */
function problemsOf(content: string | Uint8Array): string[] {
  try {
    parseJobFile(content, "job.yaml");
    return [];
  } catch (error) {
    assert.ok(isHoldfastError(error, "invalid_request"), String(error));
    return error.fields.map(({ line, column, message }: FieldError) => `${line}:${column}: ${message}`);
  }
}

const edited = (from: string, to: string): string => {
  assert.ok(good.includes(from));
  return good.replace(from, to);
};

describe("a good job file", () => {
  test("is read from YAML, and from JSON that says the same", () => {
    const { submission } = parseJobFile(good, "job.yaml");
    assert.equal(submission.metadata.name, "site");
    assert.deepEqual(
      submission.spec.phases.map(({ kind }) => kind),
      ["source", "compile", "publish"],
    );
    assert.deepEqual(parseJobFile(JSON.stringify(submission, null, "\t"), "job.json").submission, submission);
  });

  test("may begin with a byte order mark, end its lines with CRLF and share parts by alias", () => {
    const bytes = new TextEncoder().encode(`\uFEFF${good.replaceAll("\n", "\r\n")}`);
    assert.equal(parseJobFile(bytes, "job.yaml").submission.metadata.name, "site");
    const shared = good.replace("[git, clone]", "&words [git, clone]").replace("[make]", "*words");
    assert.deepEqual(parseJobFile(shared, "job.yaml").submission.spec.phases[1]?.command, ["git", "clone"]);
  });
});

describe("a wrong job file is refused with the place and what to write instead", () => {
  const cases: [title: string, file: string | Uint8Array, expected: string[]][] = [
    [
      "mistyped fields, each once",
      edited("command: [make]", "comand: [make]").replace("kind: Job", "kynd: Job"),
      [
        "2:1: unknown field `kynd`; did you mean `kind`?",
        "10:37: unknown field `comand`; did you mean `command`?",
      ],
    ],
    [
      "a mistyped choice",
      edited("kind: source", "kind: sauce"),
      ['9:28: must be one of `source`, `compile`, `publish`, found "sauce"; did you mean `source`?'],
    ],
    [
      "a number for text",
      edited("ref: main", "ref: 1.10"),
      ["7:42: must be text, found the number 1.1; put it in quotes"],
    ],
    [
      "E4: a deadline over three hours",
      edited("deadline: 10m", "deadline: 3h1us"),
      ["5:13: must be more than 0s and at most 3h, found 3h1us"],
    ],
    ["a deadline of nothing", edited("10m", "0s"), ["5:13: must be more than 0s and at most 3h, found 0s"]],
    [
      "a deadline in words",
      edited("10m", "ten minutes"),
      ['5:13: must be a duration such as `90s`, `10m` or `1h30m`, found "ten minutes"'],
    ],
    [
      "a grace period as long as the deadline",
      edited("10m", "5s"),
      ["10:61: must be shorter than the deadline of 5s, found 5s"],
    ],
    ["a grace period over its bound", edited("5s", "301s"), ["10:61: must be at most 5m, found 301s"]],
    [
      "phases of one name, a source phase too late",
      edited("name: publish, kind: publish", "name: build, kind: source"),
      [
        "11:15: phase 2 has the name `build` already",
        "11:28: a source phase can't come after a compile phase",
      ],
    ],
    [
      "two publish phases",
      edited("kind: compile", "kind: publish"),
      [
        "10:28: the publish phase must be the last one",
        "11:30: only one phase can publish, and `build` does",
      ],
    ],
    [
      "sources that nothing fetches",
      edited("kind: source", "kind: compile"),
      ["6:3: sources need a phase of kind `source` that fetches them and reports their commits"],
    ],
    [
      "no phase",
      `${good.slice(0, good.indexOf("    - {"))}    []\n`,
      ["9:5: must have at least 1 in its list, found 0"],
    ],
    [
      "a value from env and from secrets",
      edited("grace: 5s", "env: { A: x }, secrets: { A: { name: s, key: k } }"),
      ["10:80: `A` is given by `env` too; keep one of them"],
    ],
    [
      "names that are not allowed",
      edited("team: web", "-x: web").replace("grace: 5s", "env: { HOLDFAST_TOKEN: x }"),
      [
        "3:35: the name `-x` is not allowed: it must be 1 to 63 letters, digits and inner `.`, `_`, `-`, `/`",
        "10:61: the name `HOLDFAST_TOKEN` is not allowed: it must be letters, digits and underscores, at most 128, not beginning with a digit or `HOLDFAST_`",
      ],
    ],
    [
      "a field that is there twice",
      edited("kind: Job", "kind: Job\nkind: Job"),
      ["3:1: the field `kind` is there twice"],
    ],
    [
      "two documents",
      `${good}---\na: 1`,
      ["12:1: the file holds more than one document; keep one job in a file"],
    ],
    ["tabs", "\ta: 1", ["1:1: a tab can't indent; use spaces"]],
    ["a tag", edited("name: site", "name: !js site"), ["3:23: tags such as `!name` are not allowed"]],
    [
      "another YAML version",
      `%YAML 1.1\n---\n${good}`,
      ["1:1: the file is YAML 1.2; remove the `%YAML` line"],
    ],
    [
      "an alias of nothing",
      edited("[make]", "*words"),
      ["10:46: the alias `*words` has no anchor before it"],
    ],
    ["an empty file", " \n", ["1:1: the file is empty; it begins with `apiVersion: holdfast/v1`"]],
    ["NUL", edited("site", "si\0te"), ["3:21: the character U+0000 is not allowed here"]],
    ["UTF-16", Buffer.from(`\uFEFF${good}`, "utf16le"), ["1:1: the file is UTF-16; save it as UTF-8"]],
    [
      "G11: bytes that are not UTF-8",
      Buffer.concat([Buffer.from("é: é\né: "), Buffer.of(0xff)]),
      ["2:4: the file is not valid UTF-8 here; save it as UTF-8"],
    ],
    [
      "half a surrogate pair",
      edited("name: site, labels: { team: web }", 'name: site, labels: { team: "\\ud800" }'),
      ["3:41: must be well-formed Unicode, found half of a surrogate pair"],
    ],
    [
      "a name that readers could take for a prototype",
      edited("grace: 5s", "env: { __proto__: x }"),
      ["10:61: the name `__proto__` is not allowed"],
    ],
  ];
  for (const [title, file, expected] of cases)
    test(title, () => assert.deepEqual(problemsOf(file), expected));
});

describe("a hostile job file costs little", () => {
  test("one over the size bound is refused unread", () => {
    const [problem] = problemsOf(" ".repeat(jobLimits.fileBytesMax + 1));
    assert.match(problem ?? "", /at most 262144 bytes$/);
  });

  test("aliases that multiply, and one that holds itself, are refused", () => {
    const letters = "bcdefghi".split("");
    const bomb = `a: &a [x, x, x]\n${letters
      .map(
        (to, index) =>
          `${to}: &${to} [${Array(9)
            .fill(`*${["a", ...letters][index]}`)
            .join(", ")}]`,
      )
      .join("\n")}`;
    assert.deepEqual(problemsOf(bomb), ["1:1: the aliases of this file make it too large"]);
    assert.deepEqual(problemsOf("a: &x [*x]"), ["1:8: the alias `*x` holds itself"]);
  });

  test("deep nesting is refused", () => {
    assert.match(problemsOf("[".repeat(50_000)).join("\n"), /nested too deeply/);
  });

  test("a file with thousands of mistakes lists the first twenty", () => {
    const many = Array.from({ length: 5000 }, (_, index) => `x${index}: 1`).join("\n");
    assert.equal(problemsOf(many).length, 20);
  });

  test("whatever the bytes, the answer is a job or places in the file", () => {
    const parts = fc.constantFrom(
      ..."apiVersion: |kind|- |{|}|[|]|\"|'|&a |*a |!t |---\n|\n|  |#|? |%YAML|\u2028|\0|é|: ".split("|"),
    );
    const edits = fc.tuple(fc.nat(good.length), fc.nat(20), fc.array(parts, { maxLength: 5 }));
    const spoiled = edits.map(
      ([at, cut, added]) => good.slice(0, at) + added.join("") + good.slice(at + cut),
    );
    const bytes = fc.uint8Array({ maxLength: 200 });
    fc.assert(
      fc.property(fc.oneof(spoiled, bytes), (file) => {
        for (const problem of problemsOf(file)) assert.match(problem, /^\d+:\d+: \S/);
      }),
      { numRuns: 500 },
    );
  });
});
