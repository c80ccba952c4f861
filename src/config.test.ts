import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { configKeys, type KeyTable } from "./config/keys.ts";
import { assertSet, type Environment, parseConfig, required } from "./config.ts";
import { isHoldfastError } from "./wire/holdfast-error.ts";

function problemOf(environment: Environment, files: Readonly<Record<string, string>> = {}): string {
  try {
    parseConfig(environment, fileOf(files));
    return "";
  } catch (error) {
    assert.ok(isHoldfastError(error, "invalid_configuration"));
    return error.detail;
  }
}

function fileOf(files: Readonly<Record<string, string>>): (path: string) => string {
  return (path) => {
    const text = files[path];
    if (text === undefined) throw new Error(`ENOENT: ${path}`);
    return text;
  };
}

test("an empty environment gives the defaults, frozen", () => {
  const config = parseConfig({ HOLDFAST_PORT: "" });
  assert.equal(config.port, 7717);
  assert.equal(config.callbackPort, 7718);
  assert.equal(config.host, "127.0.0.1");
  assert.equal(config.database, null);
  assert.equal(config.artifactRetention, 30n * 86_400_000_000n);
  assert.equal(config.logBytesMax, 16 * 1024 * 1024);
  assert.ok(Object.isFrozen(config));
  assert.throws(() => required(config, "blobDirectory"), /HOLDFAST_BLOB_DIRECTORY is not set/);
});

test("all that is missing is named in one sentence", () => {
  const config = parseConfig({ HOLDFAST_INSTALLATION: "prod" });
  assertSet(config, ["installation"]);
  const missing = (...keys: Parameters<typeof assertSet>[1]) => {
    try {
      assertSet(config, keys);
      return null;
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  };
  assert.equal(missing("database", "installation"), "HOLDFAST_DATABASE_URL is not set");
  assert.equal(
    missing("database", "blobDirectory", "blobDirectory", "callbackKeysFile"),
    "HOLDFAST_DATABASE_URL, HOLDFAST_BLOB_DIRECTORY and HOLDFAST_CALLBACK_KEYS_FILE are not set",
  );
});

test("everything that is wrong is reported at once, by its key", () => {
  const problem = problemOf({
    HOLDFAST_PORT: "tcp://10.0.0.1:80",
    HOLDFAST_LOG_LEVEL: "inof",
    HOLDFAST_QUEUE_MAX: "0",
    HOLDFAST_ARTIFACT_RETENTION: "a month",
    HOLDFAST_INSTALLATION: "Prod",
    HOLDFAST_LOG_BYTES_MAX: "1",
    HOLDFAST_URL: "localhost:7717",
  });
  for (const expected of [
    /HOLDFAST_PORT is the address that Kubernetes sets/,
    /HOLDFAST_LOG_LEVEL must be one of .*, found "inof"; did you mean info\?/,
    /HOLDFAST_QUEUE_MAX must be a whole number from 1 to 1000000, found "0"/,
    /HOLDFAST_ARTIFACT_RETENTION must be a duration such as 30d, 12h or 1h30m, found "a month"/,
    /HOLDFAST_INSTALLATION must be 1 to 40 lower-case/,
    /HOLDFAST_LOG_BYTES_MAX must be from 65536 to/,
    /HOLDFAST_URL must be an http/,
  ]) {
    assert.match(problem, expected);
  }
});

test("durations take days, sizes take units", () => {
  const config = parseConfig({ HOLDFAST_ARTIFACT_RETENTION: "1d12h", HOLDFAST_LOG_BYTES_MAX: "1MiB" });
  assert.equal(config.artifactRetention, 36n * 3_600_000_000n);
  assert.equal(config.logBytesMax, 1_048_576);
});

test("a key that looks like another is warned of; one of somebody else is not", () => {
  const { warnings } = parseConfig({ HOLDFAST_PROT: "1", HOLDFAST_JOB: "x", HOLDFAST_TEST_POSTGRES: "x" });
  assert.deepEqual(warnings, ["HOLDFAST_PROT means nothing; did you mean HOLDFAST_PORT?"]);
});

describe("secrets", () => {
  const url = "postgres://app:s3cret@localhost/holdfast";

  test("come from a file too, but not from both places", () => {
    const files = { "/run/url": url };
    const environment = { HOLDFAST_DATABASE_URL_FILE: "/run/url" };
    assert.equal(parseConfig(environment, fileOf(files)).database?.password, "s3cret");
    assert.match(problemOf({ ...environment, HOLDFAST_DATABASE_URL: url }, files), /are both set/);
    assert.match(problemOf({ HOLDFAST_TOKEN_FILE: "/nowhere" }), /HOLDFAST_TOKEN can't be read .*\/nowhere/);
  });

  test("are in no message", () => {
    for (const wrong of [
      "mysql://a:s3cret@h/d",
      "postgres://a:s3cret@h/",
      "postgres://a:s3%cret@h/d",
      `${url}?x=s3cret`,
    ]) {
      const problem = problemOf({ HOLDFAST_DATABASE_URL: wrong });
      assert.match(problem, /^HOLDFAST_DATABASE_URL /);
      assert.doesNotMatch(problem, /cret/);
    }
    assert.doesNotMatch(problemOf({ HOLDFAST_TOKEN: "s3cret two" }), /s3cret/);
    assert.doesNotMatch(problemOf({ HOLDFAST_URL: "http://a:s3cret@h" }), /s3cret/);
  });
});

describe("the database's address", () => {
  const addressOf = (text: string) => required(parseConfig({ HOLDFAST_DATABASE_URL: text }), "database");

  test("takes host and port, or a socket's directory", () => {
    const { url, ...network } = addressOf("postgresql://app:p%40ss@localhost:6000/store");
    assert.deepEqual(network, {
      host: "localhost",
      port: 6000,
      database: "store",
      user: "app",
      password: "p@ss",
    });
    assert.match(url, /sslmode=disable/);
    for (const text of [
      "postgres://app@/store?host=/run/pg",
      "postgres://app@localhost/store?host=/run/pg",
    ]) {
      assert.equal(addressOf(text).host, "/run/pg");
      assert.equal(addressOf(text).port, 5432);
    }
    assert.equal(addressOf("postgres://app@[::1]/store").host, "::1");
  });

  test("verifies the server's certificate unless it is local or the URL says otherwise", () => {
    assert.deepEqual(addressOf("postgres://app@db.example/store").tls, { rejectUnauthorized: true });
    assert.deepEqual(addressOf("postgres://app@db.example/store?sslmode=require").tls, {
      rejectUnauthorized: false,
    });
    assert.equal(addressOf("postgres://app@db.example/store?sslmode=disable").tls, undefined);
    assert.match(
      problemOf({ HOLDFAST_DATABASE_URL: "postgres://a@h/d?sslmode=prefer" }),
      /sslmode=verify-full/,
    );
  });
});

test("docs/reference/config.md names every key with its default, and no other", () => {
  const text = readFileSync(join(import.meta.dirname, "../docs/reference/config.md"), "utf8");
  const rows = [...text.matchAll(/^\| `([A-Z0-9_]+)` \| (.*?) \|/gm)].map(([, name, fallback]) => [
    name,
    fallback,
  ]);
  const keys = Object.values<KeyTable[string]>(configKeys).map(({ name, fallback }) => [
    name,
    fallback === undefined ? "" : `\`${fallback}\``,
  ]);
  assert.deepEqual(rows, keys);
});
