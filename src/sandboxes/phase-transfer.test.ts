import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import type { IncomingMessage, ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, test } from "node:test";
import { CallbackStub } from "../../test/support/callback-stub.ts";
import { monotonicMs } from "../core/monotonic.ts";
import { type PhaseCallback, phaseCallback } from "./phase-callback.ts";
import { downloadFile, uploadFile } from "./phase-transfer.ts";

// A controller that was suspended, or whose node is lost, still has its connections: it takes what is sent and is silent.

type Fault = (request: IncomingMessage, response: ServerResponse) => void;

describe("a transfer whose peer falls silent", () => {
  let stub: CallbackStub;
  let folder: string;
  let callback: PhaseCallback;
  const waits: number[] = [];
  /** The request after so many is answered like this. */
  const after = (requests: number, fault: Fault) => {
    const pass: Fault = (request, response) => void stub.answer(request, response);
    stub.faults.push(...Array.from({ length: requests }, () => pass), fault);
  };

  beforeEach(async () => {
    stub = await CallbackStub.start();
    folder = await mkdtemp(join(tmpdir(), "holdfast-transfer-"));
    waits.length = 0;
    const { HOLDFAST_CALLBACK_URL: url = "", HOLDFAST_TOKEN: token = "" } = stub.env();
    callback = phaseCallback({
      url,
      token,
      retryForMs: 60_000,
      silenceMs: 300,
      wait: async (ms) => void waits.push(ms),
      monotonicMs,
    });
  });
  afterEach(async () => {
    await stub.close();
    await rm(folder, { recursive: true });
  });

  const silences: readonly (readonly [what: string, requests: number, fault: Fault])[] = [
    ["does not answer a call", 0, () => undefined],
    ["takes nothing of an upload", 1, () => undefined],
    ["takes all of an upload and does not answer", 1, (request) => void request.resume()],
  ];
  for (const [what, requests, fault] of silences) {
    test(`E7: one that ${what} is asked again`, async () => {
      const bytes = randomBytes(8_000_000);
      await writeFile(join(folder, "up"), bytes);
      after(requests, fault);
      const content = await uploadFile(callback, "tree", join(folder, "up"), "application/octet-stream");
      assert.equal(content.bytes, bytes.length);
      assert.equal(waits.length, 1);
    });
  }

  test("E7: one that stops in the middle of a download is asked again, and the file is whole", async () => {
    const bytes = randomBytes(3_000_000);
    await writeFile(join(folder, "up"), bytes);
    await uploadFile(callback, "tree", join(folder, "up"), "application/octet-stream");
    after(1, (_, response) => {
      response.writeHead(200, { "content-length": bytes.length });
      response.write(bytes.subarray(0, 1_000_000));
    });
    await downloadFile(callback, "source", "tree", join(folder, "down"));
    assert.deepEqual(await readFile(join(folder, "down")), bytes);
    assert.equal(waits.length, 1);
  });
});
