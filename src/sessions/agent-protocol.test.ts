import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as fc from "fast-check";
import { type AgentMessage, agentProtocolLimits as limits } from "../wire/agent-protocol.ts";
import { agentLine, parseAgentLine } from "./agent-message.ts";
import { type AgentFault, type AgentReading, beginAgent, endAgent, readAgent } from "./agent-protocol.ts";

interface Heard {
  readonly messages: readonly AgentMessage[];
  readonly end: ReturnType<typeof endAgent>;
}

function hear(...chunks: readonly (string | Uint8Array)[]): Heard {
  const messages: AgentMessage[] = [];
  let reading: AgentReading = beginAgent;
  for (const chunk of chunks) {
    const step = readAgent(reading, Buffer.from(chunk));
    reading = step.reading;
    messages.push(...step.messages);
  }
  return { messages, end: endAgent(reading) };
}

const start = '{"type":"start","protocol":1}\n';
const event = '{"type":"event","name":"notes.added","data":{"text":"milk"}}\n';
const outcome = '{"type":"outcome","candidate":null,"reply":{"text":"kept"},"required_action":null}\n';
const codeOf = ({ end }: Heard) => ("code" in end ? end.code : "outcome");

describe("what an agent says", () => {
  test("start, events and outcome are read in order", () => {
    const heard = hear(start + event + outcome);
    assert.deepEqual(
      heard.messages.map(({ type }) => type),
      ["start", "event", "outcome"],
    );
    assert.deepEqual(heard.end, {
      type: "outcome",
      candidate: null,
      reply: { text: "kept" },
      required_action: null,
    });
  });

  test("what is left out of an outcome or event is null or empty", () => {
    assert.deepEqual(hear(`${start}{"type":"event","name":"tick"}\n{"type":"outcome"}\n`), {
      messages: [
        { type: "start", protocol: 1 },
        { type: "event", name: "tick", data: {} },
        { type: "outcome", candidate: null, reply: null, required_action: null },
      ],
      end: { type: "outcome", candidate: null, reply: null, required_action: null },
    });
  });

  test("required actions are read, and nothing else in their place", () => {
    const act = (action: unknown) =>
      hear(start, `${JSON.stringify({ type: "outcome", required_action: action })}\n`);
    const grant = { type: "grant_permission", permission: "notes.write", reason: "to keep a note" };
    const retry = { type: "retry_activation", reason: "the mailbox was busy" };
    for (const action of [grant, retry]) {
      const { end } = act(action);
      assert.deepEqual("code" in end ? end : end.required_action, action);
    }
    assert.equal(codeOf(act({ ...retry, permission: "x" })), "unknown_field");
    assert.equal(codeOf(act({ ...grant, permission: "Not A Word" })), "invalid_field");
    assert.equal(codeOf(act({ ...grant, reason: "" })), "invalid_field");
    assert.equal(codeOf(act({ ...grant, reason: "x".repeat(1001) })), "too_large");
    assert.equal(codeOf(act({ type: "restart" })), "unknown_type");
    assert.equal(codeOf(act([])), "invalid_field");
  });

  test("a failure ends it with the agent's own word, also as its first line; nothing after it counts", () => {
    const failure = '{"type":"failure","code":"mailbox_gone","message":"It was closed."}\n';
    const end = { code: "mailbox_gone", detail: "It was closed." };
    assert.deepEqual(hear(start, event, failure, outcome).end, { ...end, line: 3 });
    assert.deepEqual(hear(failure).end, { ...end, line: 1 });
    assert.equal(codeOf(hear(start, outcome, failure)), "after_outcome");
    assert.equal(
      codeOf(hear(start, '{"type":"failure","code":"Two words","message":"x"}\n')),
      "invalid_field",
    );
    assert.equal(codeOf(hear(start, '{"type":"failure","code":"a"}\n')), "invalid_field");
    assert.equal(
      codeOf(hear(start, '{"type":"failure","code":"a","message":"x","retry":true}\n')),
      "unknown_field",
    );
  });

  const wrong: readonly (readonly [AgentFault["code"], string, ...(string | Uint8Array)[]])[] = [
    ["no_start", "nothing at all"],
    ["no_start", "an event first", event],
    ["no_start", "an outcome first", outcome],
    ["second_start", "two starts", start, start],
    ["no_outcome", "an end without an outcome", start, event],
    ["after_outcome", "an event after the outcome", start, outcome, event],
    ["after_outcome", "a second outcome", start, outcome, outcome],
    ["after_outcome", "an empty line after the outcome", start, outcome, "\n"],
    ["unfinished_line", "an outcome without its end", start, outcome.trimEnd()],
    ["unfinished_line", "something unfinished after the outcome", start, outcome, "{"],
    ["not_json", "an empty line", start, "\n"],
    ["not_json", "other text", start, "npm warn deprecated\n"],
    ["not_json", "two values", start, "{} {}\n"],
    ["not_json", "a byte order mark", `\ufeff${start}`],
    ["not_json", "a name twice", start, '{"type":"event","name":"a","name":"b"}\n'],
    ["not_json", "bytes that are not UTF-8", start, Buffer.from([0x22, 0xff, 0x22, 0x0a])],
    ["not_json", "NUL as a byte", start, '{"type":"event","name":"a\0"}\n'],
    ["not_json", "NUL as an escape", start, '{"type":"event","name":"a","data":{"x":"\\u0000"}}\n'],
    ["not_json", "half a surrogate pair", start, '{"type":"event","name":"a","data":{"x":"\\ud800"}}\n'],
    [
      "not_json",
      "a number that would be rounded",
      start,
      '{"type":"event","name":"a","data":{"x":9007199254740993}}\n',
    ],
    [
      "not_json",
      "too many levels",
      start,
      `{"type":"event","name":"a","data":${'{"a":'.repeat(20)}1${"}".repeat(20)}}\n`,
    ],
    ["invalid_field", "no object", start, "[]\n"],
    ["invalid_field", "null", start, "null\n"],
    ["unknown_type", "a type that there isn't", start, '{"type":"log"}\n'],
    ["unknown_type", "no type", start, "{}\n"],
    ["unknown_type", "the prototype's name", start, '{"type":"__proto__"}\n'],
    ["invalid_field", "another version", '{"type":"start","protocol":2}\n'],
    ["unknown_field", "an unknown field", '{"type":"start","protocol":1,"name":"x"}\n'],
    ["unknown_field", "an own __proto__", '{"type":"start","protocol":1,"__proto__":{}}\n'],
    ["invalid_field", "an event without a name", start, '{"type":"event"}\n'],
    ["invalid_field", "a name that is no word", start, '{"type":"event","name":"Two words"}\n'],
    ["invalid_field", "data that is no object", start, '{"type":"event","name":"a","data":[]}\n'],
    [
      "too_large",
      "too much data",
      start,
      `{"type":"event","name":"a","data":{"x":"${"x".repeat(16_384)}"}}\n`,
    ],
    ["invalid_field", "a candidate that is no digest", start, '{"type":"outcome","candidate":"ABC"}\n'],
    ["too_large", "too long a reply", start, `{"type":"outcome","reply":{"x":"${"x".repeat(49_152)}"}}\n`],
    ["line_too_long", "too long a line", start, "x".repeat(limits.lineBytesMax + 1)],
    ["too_many_lines", "too many lines", start, '{"type":"event","name":"a"}\n'.repeat(limits.linesMax)],
  ];
  for (const [code, what, ...chunks] of wrong) {
    test(`${what}: ${code}, with the same end byte by byte`, () => {
      assert.equal(codeOf(hear(...chunks)), code);
      if (chunks.some((chunk) => chunk.length > 100_000)) return;
      const bytes = Buffer.concat(chunks.map((chunk) => Buffer.from(chunk)));
      assert.deepEqual(hear(...Array.from(bytes, (byte) => Buffer.from([byte]))), hear(bytes));
    });
  }

  test("the bounds themselves are allowed", () => {
    const blank = " ".repeat(limits.lineBytesMax - start.length + 1);
    assert.equal(codeOf(hear(start.replace("\n", `${blank}\n`), outcome)), "outcome");
    const events = '{"type":"event","name":"a"}\n'.repeat(limits.linesMax - 2);
    assert.equal(codeOf(hear(start, events, outcome)), "outcome");
  });

  test("all lines together are bounded", () => {
    const long = `${event.trimEnd()}${" ".repeat(limits.lineBytesMax - event.length + 1)}\n`;
    const chunks = Array.from({ length: Math.ceil(limits.bytesMax / long.length) }, () => long);
    assert.equal(codeOf(hear(start, ...chunks, outcome)), "too_much_output");
  });

  test("after a fault nothing is read any more", () => {
    const { messages, end } = hear(start, "oops\n", event, outcome);
    assert.equal(messages.length, 1);
    assert.deepEqual(end, {
      code: "not_json",
      line: 2,
      detail: "column 1: this is not a JSON value",
    });
  });
});

const word = fc.stringMatching(/^[a-z][a-z0-9_.-]{0,10}$/);
const text = fc
  .string({ unit: "binary", maxLength: 20 })
  .filter((one) => one.isWellFormed() && !one.includes("\0"));
const object = fc.dictionary(text, fc.oneof(text, fc.integer(), fc.boolean(), fc.constant(null)), {
  maxKeys: 4,
  noNullPrototype: true,
});
const plain = { noNullPrototype: true } as const;
const anEvent = fc.record({ type: fc.constant("event" as const), name: word, data: object }, plain);
const anAction = fc.record(
  {
    type: fc.constant("retry_activation" as const),
    reason: text.filter((one) => one !== ""),
  },
  plain,
);
const anOutcome = fc.record(
  {
    type: fc.constant("outcome" as const),
    candidate: fc.option(fc.stringMatching(/^[0-9a-f]{64}$/)),
    reply: fc.option(object),
    required_action: fc.option(anAction),
  },
  plain,
);

/** Cut where the numbers say. */
function cut(bytes: Uint8Array, places: readonly number[]): Uint8Array[] {
  const ends = [...new Set([0, ...places.map((place) => place % (bytes.length + 1)), bytes.length])];
  const sorted = ends.sort((a, b) => a - b);
  return sorted.slice(1).map((end, index) => bytes.subarray(sorted[index], end));
}

describe("reading is total", () => {
  test("whatever is said by the rules is read as it was meant, however it is cut", () => {
    fc.assert(
      fc.property(
        fc.array(anEvent, { maxLength: 6 }),
        anOutcome,
        fc.array(fc.nat(), { maxLength: 8 }),
        (events, last, places) => {
          const said = [{ type: "start", protocol: 1 } as const, ...events, last];
          const heard = hear(...cut(Buffer.from(said.map(agentLine).join("")), places));
          assert.deepEqual(heard, { messages: said, end: last });
        },
      ),
      { numRuns: 200 },
    );
  });

  test("any bytes end in an outcome or a fault, the same however they are cut", () => {
    const noise = fc.oneof(
      fc.uint8Array({ maxLength: 60 }),
      fc.constantFrom(start, event, outcome, "\n", "{}", '"type"', "\r\n").map((line) => Buffer.from(line)),
    );
    fc.assert(
      fc.property(
        fc.array(noise, { maxLength: 6 }),
        fc.array(fc.nat(), { maxLength: 8 }),
        (pieces, places) => {
          const bytes = Buffer.concat(pieces);
          assert.deepEqual(hear(...cut(bytes, places)), hear(bytes));
        },
      ),
      { numRuns: 500 },
    );
  });

  test("a line is written so that reading it gives the message, on one line without raw control characters", () => {
    fc.assert(
      fc.property(fc.oneof(anEvent, anOutcome), (message) => {
        const line = agentLine(message);
        assert.doesNotMatch(line.slice(0, -1), /\p{Cc}/u);
        assert.deepEqual(parseAgentLine(Buffer.from(line.slice(0, -1))), message);
      }),
    );
  });
});
