import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { plain, spansOf, textOf } from "./ansi.ts";

const esc = "\u001b";

test("colours become styles, and go on in the next line", () => {
  const { spans, end } = spansOf(`${esc}[1;31mred${esc}[22m thin${esc}[32m green`);
  assert.deepEqual(spans, [
    { text: "red", style: { ...plain, color: 1, bold: true } },
    { text: " thin", style: { ...plain, color: 1 } },
    { text: " green", style: { ...plain, color: 2 } },
  ]);
  assert.deepEqual(spansOf("still green", end).spans[0]?.style.color, 2);
  assert.deepEqual(spansOf(`${esc}[m`, end).end, plain);
});

test("colours of 256 and of all are one of sixteen", () => {
  assert.equal(spansOf(`${esc}[38;5;9mx`).spans[0]?.style.color, 9);
  assert.equal(spansOf(`${esc}[38;5;196mx`).spans[0]?.style.color, 9);
  assert.equal(spansOf(`${esc}[38;2;0;120;0mx`).spans[0]?.style.color, 2);
  assert.equal(spansOf(`${esc}[38;5mx`).spans[0]?.style.color, 0);
});

test("whatever else a terminal would do is left out or written out", () => {
  const moves = `a${esc}[2Jb${esc}[10;10Hc${esc}]0;title\u0007d${esc}]8;;http://x${esc}\\link${esc}(Be`;
  assert.equal(textOf(spansOf(moves).spans), "abcdlinke");
  assert.equal(textOf(spansOf("bell\u0007 back\b bidi\u202e").spans), "bell\\x07 back\\x08 bidi\\u202e");
  assert.equal(textOf(spansOf(`ends in the middle ${esc}`).spans), "ends in the middle ");
});

test("no text makes it fail, and no escape comes through", () => {
  const part = fc.oneof(fc.string(), fc.constantFrom(`${esc}[`, `${esc}]`, "38;5;", "m", ";", "\u0007", esc));
  fc.assert(
    fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
      // oxlint-disable-next-line no-control-regex -- These must not be in it.
      assert.doesNotMatch(textOf(spansOf(parts.join("")).spans), /[\u0000-\u0008\u000a-\u001f\u007f]/);
    }),
  );
});
