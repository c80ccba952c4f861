import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pino } from "pino";
import { type Environment, parseConfig } from "../config.ts";
import { seconds } from "../core/time.ts";
import { openBlobs } from "./blobs.ts";

const log = pino({ level: "silent" });
const open = (environment: Environment) => openBlobs(parseConfig(environment), () => "http://c.example", log);
const content = { bytes: 3n, sha256: "0".repeat(64) };

test("G13: a store that is not configured whole is refused by the key that is missing", () => {
  for (const [environment, missing] of [
    [{}, /HOLDFAST_BLOB_DIRECTORY is not set/],
    [{ HOLDFAST_BLOB_DIRECTORY: "blobs" }, /HOLDFAST_CALLBACK_KEYS_FILE is not set/],
    [{ HOLDFAST_BLOB_STORE: "s3" }, /HOLDFAST_S3_BUCKET is not set/],
    [
      { HOLDFAST_BLOB_STORE: "s3", HOLDFAST_S3_BUCKET: "builds", HOLDFAST_S3_ACCESS_KEY_ID: "a" },
      /HOLDFAST_S3_SECRET_ACCESS_KEY is not set/,
    ],
    [
      { HOLDFAST_BLOB_STORE: "s3", HOLDFAST_S3_BUCKET: "builds", HOLDFAST_S3_SECRET_ACCESS_KEY: "a" },
      /HOLDFAST_S3_ACCESS_KEY_ID is not set/,
    ],
    [{ HOLDFAST_BLOB_STORE: "s4" }, /HOLDFAST_BLOB_STORE must be one of directory, s3/],
    [{ HOLDFAST_S3_BUCKET: "My_Bucket" }, /HOLDFAST_S3_BUCKET must be 3 to 63/],
    [{ HOLDFAST_S3_PATH_STYLE: "yes" }, /HOLDFAST_S3_PATH_STYLE must be one of true, false/],
  ] as const) {
    assert.throws(() => open(environment), missing);
  }
});

test("the directory store grants by the callback listener's origin and is served beside it", async () => {
  const folder = mkdtempSync(join(tmpdir(), "holdfast-open-blobs-"));
  try {
    const keys = join(folder, "keys");
    writeFileSync(keys, `first:${Buffer.alloc(32, 1).toString("base64")}\n`);
    const environment = {
      HOLDFAST_BLOB_DIRECTORY: join(folder, "blobs"),
      HOLDFAST_CALLBACK_KEYS_FILE: keys,
    };
    const { url } = await open(environment).blobs.grantDownload("a/b", content, seconds(60));
    assert.ok(url.startsWith("http://c.example/blobs/a/b?"));
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the S3 store grants by its own address, or by the one that sandboxes use, in the style that is set", async () => {
  const s3 = {
    HOLDFAST_BLOB_STORE: "s3",
    HOLDFAST_S3_ENDPOINT: "https://s3.internal:9000",
    HOLDFAST_S3_REGION: "eu-1",
    HOLDFAST_S3_BUCKET: "builds",
    HOLDFAST_S3_ACCESS_KEY_ID: "id",
    HOLDFAST_S3_SECRET_ACCESS_KEY: "secret",
  };
  const urlOf = async (more: Environment) =>
    (await open({ ...s3, ...more }).blobs.grantUpload("a/b", content, seconds(60))).url;
  const own = await urlOf({ HOLDFAST_S3_PATH_STYLE: "true" });
  assert.ok(own.startsWith("https://s3.internal:9000/builds/a/b?"), own);
  assert.match(own, /X-Amz-Credential=id%2F\d+%2Feu-1%2Fs3/);
  const outer = await urlOf({ HOLDFAST_S3_PUBLIC_ENDPOINT: "https://s3.example" });
  assert.ok(outer.startsWith("https://builds.s3.example/a/b?"), outer);
});
