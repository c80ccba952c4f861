import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "pg";
import { testDatabase } from "../../../test/support/database.ts";
import { instant } from "../time.ts";
import { encodeParameters, typeParsers } from "./codecs.ts";
import { statement } from "./statement.ts";

const echo = statement<
  {
    at: bigint;
    times: readonly bigint[];
    json: unknown;
    none: unknown;
    big: bigint;
    texts: readonly string[];
    bytes: Buffer;
  },
  Record<string, unknown>,
  "one"
>(
  "codecs.echo",
  "one",
  ["at", "times", "json", "none", "big", "texts", "bytes"],
  ["instant", "instants", "json", "json_or_null", "plain", "plain", "plain"],
  `select $1::timestamptz as at, $2::timestamptz[] as times, $3::jsonb as json, $4::jsonb is null as none, $5::int8 as big,
     $6::text[] as texts, array[$7::bytea] as bytes, array[$5::int8, null] as bigs, array[true, false] as flags,
     0.1::numeric as exact, '{"a": [1]}'::json as object, $3::jsonb = 'null' as json_null, 'x'::name as name`,
);

test("values go to the server and come back without loss", async (t) => {
  const { superuser } = await testDatabase(t);
  const client = new Client({
    ...superuser,
    types: typeParsers,
    options: "-c TimeZone=UTC -c DateStyle=ISO",
  });
  await client.connect();
  t.after(() => client.end());
  const at = instant(1_234_567_890_123_457n);
  const early = instant(-62_135_596_800_000_000n);
  const texts = ['quote " and \\', "{a,b}", "", "NULL", "é\n"];
  const bytes = Buffer.from([0, 255, 92]);
  const values = {
    at,
    times: [early, at],
    json: null,
    none: null,
    big: 9_223_372_036_854_775_807n,
    texts,
    bytes,
  };
  const { rows } = await client.query(echo.text, encodeParameters(echo, values));
  assert.deepEqual(rows, [
    {
      at,
      times: [early, at],
      json: null,
      json_null: true,
      none: true,
      big: values.big,
      texts,
      bytes: [bytes],
      bigs: [values.big, null],
      flags: [true, false],
      exact: "0.1",
      object: { a: [1] },
      name: "x",
    },
  ]);
  const text = await client.query(echo.text, encodeParameters(echo, { ...values, json: "a string" }));
  assert.deepEqual(text.rows[0]?.json, "a string");
});

test("a missing parameter and an instant that can't be written are refused before they are sent", () => {
  const one = statement<{ at: bigint }, never, "exec">(
    "codecs.one",
    "exec",
    ["at"],
    ["instant"],
    "select $1",
  );
  const missing: unknown = {};
  assert.throws(() => encodeParameters(one, missing as { at: bigint }), {
    name: "TypeError",
    message: "codecs.one: the parameter at is missing",
  });
  assert.throws(() => encodeParameters(one, { at: 300_000_000_000_000_000n }), RangeError);
});
