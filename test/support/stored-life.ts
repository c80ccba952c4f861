import assert from "node:assert/strict";
import type { BlobStore } from "../../src/core/blob.port.ts";
import type { HeldLease } from "../../src/core/lease.ts";
import { insertPublication } from "../../src/core/outbox.store.ts";
import { transition } from "../../src/core/postgres/transition.ts";
import { stampAll } from "../../src/core/sequencer.ts";
import { instant } from "../../src/core/time.ts";
import { appendProgress } from "../../src/executions/phase.store.ts";
import {
  completeObject,
  declareArtifact,
  promiseObject,
  recordSourcePins,
} from "../../src/executions/report.store.ts";
import type { Sandbox } from "../../src/sandboxes/sandbox.ts";
import { type Attempts, commit } from "./attempts.ts";
import { noBlobs } from "./gateway.ts";
import { tenantA } from "./kernel.ts";

/** Has every object that was promised, and nobody can get at any of them. */
export const trustingBlobs: BlobStore = {
  ...noBlobs,
  verify: () => Promise.resolve(true),
  grantUpload: () =>
    Promise.resolve({ method: "PUT", url: "http://127.0.0.1/", headers: {}, expiresAt: instant(0n) }),
};

/** What a sandbox reports while it runs: pins from sources, an artifact from what publishes, a line of output. */
export async function report(
  { db }: Attempts,
  lease: HeldLease,
  sandbox: Sandbox,
  kind: string,
): Promise<void> {
  const identity = { tenant: lease.tenant, sandbox: sandbox.id, deadline: sandbox.deadline };
  if (kind === "source") await recordSourcePins(db, identity, { pins: { engine: commit } });
  if (kind === "publish") {
    const content = { bytes: 3, sha256: "a".repeat(64) };
    const never = new AbortController().signal;
    await promiseObject(db, trustingBlobs, identity, "site.tar.gz", content);
    await completeObject(db, trustingBlobs, identity, "site.tar.gz", content, never);
    await declareArtifact(db, identity, { object: "site.tar.gz", files: [] });
  }
  const chunk = { stream: "stdout", at: instant(0n), text: `${kind}\n` } as const;
  await appendProgress(db, lease, sandbox.id, {
    afterSeq: 0n,
    position: null,
    chunks: [chunk],
    truncated: false,
  });
}

/** A store in which something of everything has happened: published, failed and waiting again, running, waiting. */
export async function liveThrough(bench: Attempts): Promise<void> {
  const sources = { engine: { repository: "https://example.test/engine.git", ref: "main" } };
  const kinds = ["source", "compile", "publish"] as const;
  const published = await bench.begin({ kinds, sources });
  for (const kind of kinds) {
    const view = await bench.released(published.lease);
    const sandbox = view.sandboxes.find(({ state }) => state === "released");
    assert(sandbox !== undefined);
    await report(bench, published.lease, sandbox, kind);
    await bench.step(published.lease);
  }
  await bench.driveTo(published.lease, "nothing");

  const again = await bench.begin({ attempts: 2 });
  await bench.released(again.lease);
  await bench.step(again.lease, { exitCode: 1 });
  await bench.driveTo(again.lease, "finish");
  await bench.finish(again.lease, { outcome: "failed", attemptsMax: 2 });

  const running = await bench.begin({ kinds, sources });
  const { sandboxes } = await bench.released(running.lease);
  // Its output is in chunks; that of the published one has moved to its archive.
  for (const sandbox of sandboxes) await report(bench, running.lease, sandbox, "says nothing but this");
  await bench.submit();
  await transition(bench.db, { role: "controller", tenant: tenantA, name: "tell" }, (tx) =>
    insertPublication(tx, {
      source: { kind: "job", id: running.job },
      session: running.job,
      ordinal: 1n,
      destination: "hook",
      payload: {},
    }),
  );
  await stampAll(bench.db, 500);
}
