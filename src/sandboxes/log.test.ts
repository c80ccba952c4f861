import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { LogRecord } from "../core/runtime.port.ts";
import { instant } from "../core/time.ts";
import { logAssembler, readFrom } from "./log.ts";

const at = instant(1n);
const record = (
  cursor: string,
  text: string | Uint8Array,
  stream: LogRecord["stream"] = "stdout",
): LogRecord => ({
  cursor,
  stream,
  at,
  bytes: typeof text === "string" ? Buffer.from(text) : text,
});

function assembled(records: readonly LogRecord[], secrets: readonly string[] = []): string {
  const assembler = logAssembler({ secrets, position: null });
  let text = "";
  for (const one of records) {
    assembler.push(one);
    for (const chunk of assembler.take("lines").chunks) text += chunk.text;
  }
  for (const chunk of assembler.take("end").chunks) text += chunk.text;
  return text;
}

test("E15: NUL, control bytes and invalid UTF-8 become visible text that can be stored", () => {
  const bytes = Buffer.from([0x61, 0x00, 0x07, 0xff, 0xc3, 0x28, 0x0a]);
  assert.equal(assembled([record("1", bytes)]), "a\u2400\u2407\ufffd\ufffd(\n");
  assert.equal(assembled([record("1", "tab\tand\r\nline\rover\n")]), "tab\tand\nline\nover\n");
});

test("E15: colours stay, other escape sequences do not reach a terminal", () => {
  assert.equal(
    assembled([record("1", "\u001b[31mred\u001b[0m\u001b]0;title\u0007\n")]),
    "\u001b[31mred\u001b[0m\u241b]0;title\u2407\n",
  );
});

test("E15: a character split over records is one character", () => {
  const euro = Buffer.from("€\n");
  assert.equal(assembled([record("1", euro.subarray(0, 1)), record("2", euro.subarray(1))]), "€\n");
});

test("E15: a secret is masked wherever it is split", () => {
  const secret = "correct-horse";
  const line = `token=${secret}; again ${secret}\n`;
  for (let cut = 0; cut <= line.length; cut += 1) {
    const text = assembled([record("1", line.slice(0, cut)), record("2", line.slice(cut))], [secret]);
    assert.equal(text, "token=***; again ***\n", `cut at ${cut}`);
  }
});

test("E15: a secret with line breaks in it is masked as a whole", () => {
  const key = "-----BEGIN\nabc\ndef\n-----END";
  assert.equal(
    assembled([record("1", `k=-----BEGIN\nabc\n`), record("2", "def\n-----END\nrest\n")], [key]),
    "k=***\nrest\n",
  );
});

test("E15: a line without an end is cut at a bound, and nothing of it is lost", () => {
  const long = "x".repeat(1_000_000);
  const assembler = logAssembler({ secrets: [], position: null });
  assembler.push(record("1", long));
  const { chunks } = assembler.take("lines");
  assert.ok(chunks.every((chunk) => chunk.text.length <= 65_536));
  const rest = assembler.take("end").chunks;
  assert.equal([...chunks, ...rest].map((chunk) => chunk.text).join(""), long);
});

test("E15: whoever goes on from a stored position stores exactly what was missing", () => {
  const streams = fc.constantFrom("stdout" as const, "stderr" as const);
  const parts = fc.array(
    fc.tuple(
      streams,
      fc.string({ unit: fc.constantFrom("a", "é", "\n", "s", "e", "c", "r", "t"), maxLength: 12 }),
    ),
    { maxLength: 30 },
  );
  fc.assert(
    fc.property(parts, fc.array(fc.nat(29), { maxLength: 5 }), (pieces, crashes) => {
      const records = pieces
        .filter(([, text]) => text !== "")
        .map(([stream, text], index) => record(String(index + 1), text, stream));
      const expected = (stream: string) =>
        records
          .filter((one) => one.stream === stream)
          .map((one) => Buffer.from(one.bytes).toString())
          .join("")
          .replaceAll("secret", "***");
      const stored: Record<string, string> = { stdout: "", stderr: "" };
      let position: string | null = null;
      for (const crash of [...crashes, records.length]) {
        // Another controller: it knows the position and nothing else.
        const assembler = logAssembler({ secrets: ["secret"], position });
        const from = Number(readFrom(position) ?? 0);
        for (const one of records.slice(from, Math.max(from, crash))) {
          assembler.push(one);
          const taken = assembler.take("lines");
          for (const chunk of taken.chunks) stored[chunk.stream] += chunk.text;
          position = taken.position;
        }
        if (crash !== records.length) continue;
        const taken = assembler.take("end");
        for (const chunk of taken.chunks) stored[chunk.stream] += chunk.text;
        position = taken.position;
      }
      assert.equal(stored["stdout"], expected("stdout"));
      assert.equal(stored["stderr"], expected("stderr"));
    }),
    { numRuns: 500 },
  );
});
