import assert from "node:assert/strict";
import { test } from "node:test";
import { brandId, type SandboxId, type TenantId } from "../core/ids.ts";
import type { LogRecord, Runtime } from "../core/runtime.port.ts";
import { instant } from "../core/time.ts";
import { collectLog, type StoreLog } from "./collector.ts";
import type { LogChunk } from "./log.ts";
import type { LogProgress, Sandbox } from "./sandbox.ts";

const secret = "correct-horse-battery";
const mebibyte = 1_048_576;

/** A runtime that only has output: records from a cursor on, as fast as they are taken. */
function talking(records: (from: number) => Iterable<LogRecord>): Runtime {
  const runtime: Pick<Runtime, "logs"> = {
    async *logs(_ref, { cursor }, signal) {
      for (const record of records(Number(cursor ?? 0))) {
        signal.throwIfAborted();
        yield await Promise.resolve(record);
      }
    },
  };
  return runtime as Runtime; // The collector calls nothing else.
}

function sandbox(log: Partial<LogProgress> = {}): Sandbox & { readonly uid: string } {
  return {
    id: brandId<SandboxId>("01976b2c-0000-7000-8000-0000000000b1"),
    tenant: brandId<TenantId>("acme"),
    owner: { kind: "execution", id: "01976b2c-0000-7000-8000-0000000000a1" },
    step: "build",
    ordinal: 1,
    name: "hf-build-1",
    runtime: "process",
    state: "released",
    uid: "uid",
    deadline: instant(1n),
    plannedAt: instant(1n),
    releasedAt: instant(1n),
    stoppedAt: null,
    removedAt: null,
    stopReason: null,
    outcome: null,
    exitCode: null,
    message: null,
    unprovenSince: null,
    log: { position: null, seq: 0n, bytes: 0n, truncated: false, settled: false, ...log },
  };
}

/** What the database would have: chunks in order, where to go on, and how much there is. */
function shelf() {
  const chunks: LogChunk[] = [];
  let progress: LogProgress = { position: null, seq: 0n, bytes: 0n, truncated: false, settled: false };
  const store: StoreLog = async (append) => {
    if (append.afterSeq !== progress.seq) return false;
    chunks.push(...append.chunks);
    const bytes = append.chunks.reduce(
      (sum, { text }) => sum + BigInt(Buffer.byteLength(text)),
      progress.bytes,
    );
    progress = {
      position: append.position,
      seq: progress.seq + BigInt(append.chunks.length),
      bytes,
      truncated: progress.truncated || append.truncated,
      settled: false,
    };
    return Promise.resolve(true);
  };
  return { chunks, store, progress: () => progress };
}

async function collect(records: (from: number) => Iterable<LogRecord>, bytesMax: number) {
  const kept = shelf();
  const rssBefore = process.memoryUsage.rss();
  let rssMax = rssBefore;
  const store: StoreLog = (append) => {
    rssMax = Math.max(rssMax, process.memoryUsage.rss());
    return kept.store(append);
  };
  const began = performance.now();
  await collectLog(
    talking(records),
    sandbox(),
    {
      follow: false,
      secrets: [secret],
      room: { bytes: BigInt(bytesMax), bytesMax: BigInt(bytesMax), marked: false },
      store,
    },
    new AbortController().signal,
  );
  const seconds = (performance.now() - began) / 1000;
  return { ...kept, seconds, rssGrowth: (rssMax - rssBefore) / mebibyte };
}

function* cutUp(text: Buffer, size: number, from: number, streams = ["stdout"] as LogRecord["stream"][]) {
  for (let n = from; n * size < text.length; n += 1) {
    const bytes = text.subarray(n * size, (n + 1) * size);
    yield { cursor: String(n + 1), stream: streams[n % streams.length] ?? "stdout", at: instant(1n), bytes };
  }
}

const marks = (chunks: readonly LogChunk[]) => chunks.filter(({ stream }) => stream === "system");
const textOf = (chunks: readonly LogChunk[], stream: LogChunk["stream"] = "stdout") =>
  chunks
    .filter((chunk) => chunk.stream === stream)
    .map(({ text }) => text)
    .join("");

test("E15: a line of 10 MB is stored in parts, whole and masked, in bounded memory", async (t) => {
  const line = Buffer.from(`${"x".repeat(5_000_000)}${secret}${"y".repeat(5_000_000)}\n`);
  const { chunks, seconds, rssGrowth } = await collect((from) => cutUp(line, 65_536, from), 16 * mebibyte);
  t.diagnostic(`10 MB line: ${(10 / seconds).toFixed(1)} MB/s, RSS +${rssGrowth.toFixed(0)} MiB`);
  assert.equal(textOf(chunks), line.toString().replace(secret, "***"));
  assert.ok(chunks.every(({ text }) => Buffer.byteLength(text) <= 65_536));
  assert.deepEqual(marks(chunks), []);
  assert.ok(rssGrowth < 128, `${rssGrowth} MiB`);
});

test("E15: a million lines are stored in order, in few chunks and bounded memory", async (t) => {
  const output = Buffer.from(Array.from({ length: 1_000_000 }, (_, n) => `line ${n}\n`).join(""));
  const run = await collect((from) => cutUp(output, 32_768, from), 16 * mebibyte);
  const megabytes = output.length / 1e6;
  t.diagnostic(
    `1,000,000 lines (${megabytes.toFixed(1)} MB): ${(megabytes / run.seconds).toFixed(1)} MB/s, ${run.chunks.length} chunks, RSS +${run.rssGrowth.toFixed(0)} MiB`,
  );
  assert.ok(Buffer.from(textOf(run.chunks)).equals(output));
  assert.ok(run.chunks.length < 400, String(run.chunks.length));
  assert.ok(run.rssGrowth < 192, `${run.rssGrowth} MiB`);
});

test("E15: twenty thousand records of one line each cost no more than their bytes", async (t) => {
  const output = Buffer.from(
    Array.from({ length: 20_000 }, (_, n) => `line ${String(n).padStart(9, "0")}\n`).join(""),
  );
  const run = await collect((from) => cutUp(output, 15, from, ["stdout", "stderr"]), 16 * mebibyte);
  t.diagnostic(`20,000 records: ${(output.length / 1e6 / run.seconds).toFixed(1)} MB/s`);
  assert.equal(textOf(run.chunks).length + textOf(run.chunks, "stderr").length, output.length);
  assert.ok(textOf(run.chunks).startsWith("line 000000000\nline 000000002\n"));
  assert.ok(textOf(run.chunks, "stderr").startsWith("line 000000001\nline 000000003\n"));
});

test("E15: beyond the bound one mark stands, within the bound, and the rest is not even read", async () => {
  const bytesMax = 100_000;
  let read = 0;
  function* endless(from: number): Iterable<LogRecord> {
    for (let n = from; ; n += 1) {
      read = n + 1;
      const bytes = Buffer.from(`${"z".repeat(99)}\n`.repeat(100));
      yield { cursor: String(read), stream: n % 2 === 0 ? "stdout" : "stderr", at: instant(1n), bytes };
    }
  }
  const { chunks, progress, store } = await collect(endless, bytesMax);
  assert.deepEqual(
    marks(chunks).map(({ text }) => text),
    ["[output beyond 100000 bytes is not kept]\n"],
  );
  const { bytes, truncated } = progress();
  assert.ok(truncated && bytes <= BigInt(bytesMax) && bytes > BigInt(bytesMax) - 200n, String(bytes));
  assert.ok(textOf(chunks).endsWith("z\n"), "it is cut after a line");
  assert.ok(read < 1000, `${read} records`);
  // Whoever comes after reads nothing more of it.
  read = 0;
  const options = { follow: false, secrets: [], room: { bytes: 0n, bytesMax: 0n, marked: false }, store };
  await collectLog(talking(endless), sandbox(progress()), options, new AbortController().signal);
  assert.equal(read, 0);
});

test("E15: a later phase of an attempt whose log is full stores nothing, and no second mark", async () => {
  const kept = shelf();
  await collectLog(
    talking((from) => cutUp(Buffer.from("too late\n"), 100, from)),
    sandbox(),
    {
      follow: false,
      secrets: [],
      room: { bytes: 40n, bytesMax: 100_000n, marked: true },
      store: kept.store,
    },
    new AbortController().signal,
  );
  assert.deepEqual(kept.chunks, []);
  assert.ok(kept.progress().truncated);
});

test("E15: what the store refuses ends the collector with that reason, and the sandbox is not read on", async () => {
  const fenced = new Error("fenced");
  let read = 0;
  function* endless(): Iterable<LogRecord> {
    for (;;) {
      read += 1;
      yield { cursor: String(read), stream: "stdout", at: instant(1n), bytes: Buffer.alloc(65_536, "a\n") };
    }
  }
  const options = {
    follow: true,
    secrets: [],
    room: { bytes: 1_000_000_000n, bytesMax: 1_000_000_000n, marked: false },
    store: () => Promise.reject(fenced),
  };
  await assert.rejects(
    collectLog(talking(endless), sandbox(), options, new AbortController().signal),
    fenced,
  );
  assert.ok(read < 40, `${read} records of 64 KiB`);
});
