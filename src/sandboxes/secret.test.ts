import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import type { LogRecord } from "../core/runtime.port.ts";
import { instant } from "../core/time.ts";
import { logAssembler, readFrom } from "./log.ts";
import { environmentSecrets, isSecretName, secretForms, secretNameEndings } from "./secret.ts";
import { secretMatcher } from "./secret-matcher.ts";

const at = instant(1n);
const record = (cursor: number, bytes: Uint8Array, stream: LogRecord["stream"]): LogRecord => ({
  cursor: String(cursor),
  stream,
  at,
  bytes,
});

function masked(text: string, secrets: readonly string[]): string {
  const assembler = logAssembler({ secrets, position: null });
  assembler.push(record(1, Buffer.from(text), "stdout"));
  return assembler
    .take("end")
    .chunks.map((chunk) => chunk.text)
    .join("");
}

test("E15: values of the environment are secret by their names, from eight characters on", () => {
  const environment = {
    NPM_TOKEN: "npm_12345678",
    db_password: "hunter2hunter2",
    API_KEY: "short",
    GOOGLE_APPLICATION_CREDENTIALS: "/run/secrets/google.json",
    KEYBOARD: "qwertyuiop",
    HOME: "/home/builder",
  };
  assert.deepEqual(environmentSecrets(environment), [
    "npm_12345678",
    "hunter2hunter2",
    "/run/secrets/google.json",
  ]);
  assert.ok(isSecretName("Deploy_Key") && !isSecretName("TOKENIZER"));
});

test("E15: the endings of secret names are documented, each and no other", () => {
  const page = readFileSync(join(import.meta.dirname, "../../docs/reference/sandbox-contract.md"), "utf8");
  const [, sentence = ""] = /whose names end in\s([^.]*?)\(in any case\)/s.exec(page) ?? [];
  assert.deepEqual(
    [...sentence.matchAll(/`([A-Z]+)`/g)].map(([, ending]) => ending),
    [...secretNameEndings],
  );
});

test("E15: a secret is masked in its usual encodings too", () => {
  const secret = `p@ss "word"/100% + café~`;
  const bytes = Buffer.from(secret);
  const shown = [
    secret,
    bytes.toString("base64"),
    bytes.toString("base64").replace(/=+$/, ""),
    bytes.toString("base64url"),
    encodeURIComponent(secret),
    encodeURIComponent(secret).toLowerCase(),
    new URLSearchParams({ q: secret }).toString().slice(2),
    JSON.stringify(secret).slice(1, -1),
  ];
  for (const text of shown) assert.equal(masked(`<${text}>\n`, [secret]), "<***>\n", text);
});

test("E15: a secret inside something that is encoded whole is masked wherever it lies in it", () => {
  const secret = "correct-horse-battery";
  for (let before = 0; before < 7; before += 1) {
    const text = Buffer.from(`${"u".repeat(before)}${secret}@host`).toString("base64");
    const seen = masked(`${text}\n`, [secret]);
    const left = Buffer.from(seen.replace("***", ""), "base64").toString("latin1");
    assert.match(seen, /\*\*\*/, `after ${before} bytes`);
    assert.ok(!left.includes("correct") && !left.includes("battery"), `${before}: ${seen}`);
  }
});

test("E15: a long secret is masked where tools wrap its base64, and a key line by line", () => {
  const secret = Array.from({ length: 40 }, (_, n) => `part${n}`).join("-");
  const wrapped = (width: number) =>
    (
      Buffer.from(`${secret}\n`)
        .toString("base64")
        .match(new RegExp(`.{1,${width}}`, "g")) ?? []
    ).join("\n");
  for (const width of [64, 76]) {
    const lines = masked(`${wrapped(width)}\n`, [secret])
      .split("\n")
      .slice(0, -2);
    assert.ok(lines.length > 3 && lines.every((line) => line === "***"), String(width));
  }
  const key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkq\nhkiG9w0BAQEFAASC\n-----END KEY-----\n";
  const indented = key.replaceAll(/^/gm, "  | ");
  assert.ok(!/MIIE|hkiG/.test(masked(indented, [key])));
});

test("E15: a secret in a file with a line break at its end is masked without it", () => {
  assert.equal(masked("Bearer hunter2hunter2;\n", ["hunter2hunter2\n"]), "Bearer ***;\n");
});

test("E15: secrets that overlap in the output leave nothing of either", () => {
  assert.equal(masked("<abcdefghijkl>\n", ["abcdefgh", "efghijkl"]), "<***>\n");
  assert.equal(masked("<abcdefghabcdefgh>\n", ["abcdefgh"]), "<******>\n");
});

test("E15: split at every byte, on both streams, over a takeover, no secret and no encoding of it is stored", () => {
  const secret = "tök3n/+with spaces";
  const forms = [secret, Buffer.from(secret).toString("base64"), encodeURIComponent(secret)];
  const output = Buffer.from(forms.map((form) => `a=${form} b\r\n`).join(""));
  const expected = "a=*** b\n".repeat(forms.length);
  for (let cut = 0; cut <= output.length; cut += 1) {
    for (const taken of ["lines", "partial"] as const) {
      const records = (["stdout", "stderr"] as const).flatMap((stream, index) => [
        record(index + 1, output.subarray(0, cut), stream),
        record(index + 3, output.subarray(cut), stream),
      ]);
      const [one, three, two, four] = records;
      assert.ok(one !== undefined && two !== undefined && three !== undefined && four !== undefined);
      const inOrder = [one, two, three, four];
      const stored: Record<string, string> = { stdout: "", stderr: "" };
      const before = logAssembler({ secrets: [secret], position: null });
      before.push(one);
      before.push(two);
      const first = before.take(taken);
      // Another controller goes on from what is stored and knows nothing else.
      const after = logAssembler({ secrets: [secret], position: first.position });
      for (const next of inOrder) {
        if (Number(next.cursor) > Number(readFrom(first.position) ?? 0)) after.push(next);
      }
      for (const chunk of [...first.chunks, ...after.take("end").chunks]) {
        stored[chunk.stream] += chunk.text;
      }
      assert.deepEqual(stored, { stdout: expected, stderr: expected }, `cut at ${cut}, ${taken}`);
    }
  }
});

test("E15: all secrets are found in one pass, like by searching for each at each place", () => {
  const word = fc.string({ unit: fc.constantFrom("a", "b", "c"), minLength: 1, maxLength: 6 });
  fc.assert(
    fc.property(
      fc.array(word, { minLength: 1, maxLength: 6 }),
      fc.array(word, { maxLength: 20 }),
      (secrets, pieces) => {
        const text = pieces.join("");
        const longestAt = Array.from({ length: text.length + 1 }, (_, end) =>
          Math.max(0, ...secrets.filter((one) => text.slice(0, end).endsWith(one)).map((one) => one.length)),
        );
        const search = secretMatcher(secrets.map((one) => Buffer.from(one))).start();
        const found = Array.from({ length: text.length + 1 }, () => 0);
        let read = 0;
        for (const piece of pieces) {
          search.read(Buffer.from(piece), (end, length) => (found[read + end] = length));
          read += piece.length;
          const open = Math.max(
            0,
            ...secrets.flatMap((one) =>
              Array.from({ length: one.length }, (_, n) => n + 1).filter((n) =>
                text.slice(0, read).endsWith(one.slice(0, n)),
              ),
            ),
          );
          assert.equal(search.open, open);
        }
        assert.deepEqual(found, longestAt);
      },
    ),
    { numRuns: 500 },
  );
});

test("E15: a value that hardly is one is not masked, and nothing is masked twice", () => {
  assert.deepEqual(secretForms(["abc", ""]), []);
  const forms = secretForms(["correct-horse"]).map(String);
  assert.equal(new Set(forms).size, forms.length);
});
