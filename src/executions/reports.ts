import type { BlobStore } from "../core/blob.port.ts";
import type { Database } from "../core/postgres/transition.ts";
import type { SandboxReports } from "../sandboxes/http.ts";
import * as store from "./report.store.ts";

/** What the phases of executions report, as the callback listener hands it on. */
export function executionReports(db: Database, blobs: BlobStore): SandboxReports {
  return {
    progress: (from, report) => store.reportProgress(db, from, report),
    pins: (from, report) => store.recordSourcePins(db, from, report),
    result: (from, result) => store.reportResult(db, from, result),
    upload: (from, name, request) => store.promiseObject(db, blobs, from, name, request),
    complete: (from, name, request, signal) => store.completeObject(db, blobs, from, name, request, signal),
    async download(from, object) {
      const { content, ...grant } = await store.grantObject(db, blobs, from, object);
      return { ...grant, ...content };
    },
    artifact: (from, report) => store.declareArtifact(db, from, report),
  };
}
