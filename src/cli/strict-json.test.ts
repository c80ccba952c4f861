import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import pc from "picocolors";
import { ApiError } from "../client/client.ts";
import { readJson } from "../http/json.ts";
import { defaultLimits } from "../http/limits.ts";
import { isHoldfastError } from "../wire/holdfast-error.ts";
import { failureOf, failureText } from "./failures.ts";
import { readText } from "./job-source.ts";
import { strictJson, strictJsonFile } from "./strict-json.ts";

const directory = await mkdtemp(join(tmpdir(), "holdfast-json-"));
after(() => rm(directory, { recursive: true }));
const colors = pc.createColors(false);

/** The places that are told, and whether the text points at them. */
async function places(content: string | Uint8Array, read: (file: string) => Promise<unknown>) {
  const file = join(directory, "input.json");
  await writeFile(file, content);
  const error = await read(file).then(
    () => null,
    (refused: unknown) => refused,
  );
  if (error === null) return [];
  const failure = failureOf(error);
  assert.equal(failure.exit_code, 2);
  const text = failureText(error, colors);
  return failure.errors.map(({ line, column, message }) => {
    assert.ok(text.includes(`${file}:${line}:${column}: ${message}`), text);
    return `${line}:${column}: ${message}`;
  });
}

const nested = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;

test("G11: a mistake in JSON is at its line and column in the user's own file", async () => {
  const json = (content: string | Uint8Array) => places(content, strictJsonFile);
  assert.deepEqual(await json('{\n  "cents": 500\n}\n'), []);
  assert.deepEqual(await json('{\n  "a": 1,\n  "a": 2\n}'), ["3:3: this name stands twice in the object"]);
  assert.deepEqual(await json('{\r\n  "id": 12345678901234567890\r\n}'), [
    "2:9: the number is larger than 2^53 - 1 and would be rounded",
  ]);
  assert.deepEqual(await json('{"a":\n "\\u0000"}'), ["2:2: NUL can't be stored"]);
  assert.deepEqual(await json('\ufeff{"a":,}'), ["1:6: this is not a JSON value"]);
  const cut = Buffer.concat([Buffer.from('{\n "a": "'), Buffer.from([0xff])]);
  assert.deepEqual(await json(cut), ["2:8: byte 10 is not valid UTF-8"]);
});

test("G11: what the request around it would make too deep is refused here, where its place is known", async () => {
  const most = defaultLimits.jsonDepth - 1;
  assert.deepEqual(await places(nested(most), strictJsonFile), []);
  assert.deepEqual(await places(nested(most + 1), strictJsonFile), [`1:${most + 1}: at most ${most} levels`]);
  const sent = (levels: number) => new TextEncoder().encode(`{"input":${nested(levels)}}`);
  assert.doesNotThrow(() => readJson(sent(most), { depth: defaultLimits.jsonDepth }));
  assert.throws(() => readJson(sent(most + 1), { depth: defaultLimits.jsonDepth }));
});

test("G11: text that nobody can keep is refused at its place", async () => {
  const text = (content: string | Uint8Array) => places(content, readText);
  assert.deepEqual(await text("hello\nworld"), []);
  assert.deepEqual(await text("hello\nwor\0ld"), ["2:4: NUL can't be stored"]);
  assert.deepEqual(await text("\0"), ["1:1: NUL can't be stored"]);
  const bytes = Buffer.concat([Buffer.from("gr\u00fcn\n\n ab"), Buffer.from([0xc3])]);
  assert.deepEqual(await text(bytes), ["3:4: byte 11 is not valid UTF-8"]);
});

test("G11: a flag's JSON is shown with its place too", () => {
  assert.throws(
    () => strictJson('{"a":1,"a":2}', "--json"),
    (error) => failureText(error, colors).includes("--json:1:8: this name stands twice in the object"),
  );
});

test("a place in the body that we made is told as its member: its line and column are in no file", () => {
  const refusal = (body: string) => {
    try {
      return readJson(new TextEncoder().encode(body), { depth: 8 });
    } catch (error) {
      if (!isHoldfastError(error)) throw error;
      const { code, detail, fields } = error;
      return new ApiError({ code, status: 400, detail, errors: fields });
    }
  };
  const failure = failureOf(refusal('{"stimulus":{"text":"a\\u0000b"}}'));
  assert.equal(failure.detail, "/stimulus/text: NUL can't be stored");
  assert.deepEqual(failure.errors, [{ pointer: "/stimulus/text", message: "NUL can't be stored" }]);
  assert.doesNotMatch(failureText(refusal('{"a":1,"a":2}'), colors), /line|column|body/);
});
