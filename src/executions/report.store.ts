import type { BlobContent, BlobKey, BlobStore, Capability } from "../core/blob.port.ts";
import { canonicalJson } from "../core/canonical.ts";
import { HoldfastError } from "../core/errors.ts";
import { type Database, type Transaction, transition } from "../core/postgres/transition.ts";
import { type Instant, type Microseconds, microseconds } from "../core/time.ts";
import type { SandboxIdentity } from "../sandboxes/callback.ts";
import { assertSandboxReports, readSandboxOwner } from "../sandboxes/sandbox.sql.ts";
import {
  type ArtifactReport,
  type CompleteRequest,
  callbackLimits,
  type PinsReport,
  type ProgressReport,
  type UploadRequest,
} from "../wire/callback.ts";
import { artifactFault } from "./artifact.ts";
import { lockAttempt } from "./attempt.sql.ts";
import { recordEvent } from "./attempt.store.ts";
import * as objects from "./object.sql.ts";
import * as sql from "./phase.sql.ts";
import type { Plan } from "./plan.ts";

/** A phase that reports: its attempt is locked, and its own sandbox may still speak. */
interface Reporter {
  readonly attempt: string;
  readonly job: string;
  readonly ordinal: number;
  readonly phase: string;
  readonly kind: string;
  readonly plan: Plan;
  readonly deadline: Instant;
}

/**
 * A transition that a sandbox asks for. Its fence is the sandbox itself: released, not stopping, not past its
 * deadline, checked with attempt and sandbox locked. A controller's takeover refuses nothing here (E9, E17).
 */
function reported<T>(
  db: Database,
  identity: SandboxIdentity,
  name: string,
  body: (tx: Transaction, reporter: Reporter) => Promise<T>,
): Promise<T> {
  const { tenant, sandbox } = identity;
  return transition(db, { role: "controller", tenant, name }, async (tx) => {
    const owner = await tx.run(readSandboxOwner, { sandbox });
    if (owner?.owner_kind !== "execution")
      throw new HoldfastError("sandbox_fenced", "there is no such sandbox");
    const attempt = await tx.run(lockAttempt, { attempt: owner.owner_id });
    if (attempt?.state !== "active") throw new HoldfastError("sandbox_fenced", "the attempt has ended");
    await tx.run(assertSandboxReports, { sandbox });
    const phase = await tx.run(sql.readPhaseKind, { attempt: owner.owner_id, phase: owner.step });
    if (phase?.state !== "running")
      throw new HoldfastError("sandbox_fenced", `phase ${owner.step} is not running`);
    return body(tx, {
      attempt: owner.owner_id,
      job: attempt.job_id,
      ordinal: attempt.ordinal,
      phase: owner.step,
      kind: phase.kind,
      plan: attempt.plan as Plan,
      deadline: attempt.deadline,
    });
  });
}

export function reportProgress(
  db: Database,
  identity: SandboxIdentity,
  report: ProgressReport,
): Promise<void> {
  return reported(db, identity, "reportProgress", async (tx, { attempt, phase }) => {
    // Shown to people as one line: control characters could move their cursor.
    const message = report.message.toWellFormed().replaceAll(/\p{Cc}/gu, " ");
    const percent = report.percent ?? null;
    const changed = await tx.run(sql.reportProgress, { attempt, phase, message, percent });
    if (changed === 1) await recordEvent(tx, attempt, "phase.progress", { phase, message, percent });
  });
}

/** All or none are stored; a stored pin never changes. Gives what is stored and what is missing (E9). */
export function recordSourcePins(
  db: Database,
  identity: SandboxIdentity,
  report: PinsReport,
): Promise<{ readonly pins: Record<string, string>; readonly missing: string[] }> {
  return reported(db, identity, "recordSourcePins", async (tx, { attempt, phase, kind, plan }) => {
    if (kind !== "source")
      throw new HoldfastError("conflict", `pins come from source phases; ${phase} is ${kind}`);
    const unknown = Object.keys(report.pins).filter((source) => !Object.hasOwn(plan.sources, source));
    if (unknown.length > 0) {
      throw new HoldfastError("invalid_request", `the plan has no source ${unknown.join(", ")}`, {
        fields: unknown.map((source) => ({
          pointer: `/pins/${source}`,
          message: "not a source of the plan",
        })),
      });
    }
    const added: string[] = [];
    for (const [source, commit] of Object.entries(report.pins)) {
      const inserted = await tx.run(sql.insertPin, { attempt, source, commit, sandbox: identity.sandbox });
      if (inserted !== undefined) added.push(source);
    }
    const stored = await tx.run(sql.listPins, { attempt });
    const pins = Object.fromEntries(stored.map((pin) => [pin.source, pin.commit_id]));
    const changed = Object.keys(report.pins).find((source) => pins[source] !== report.pins[source]);
    if (changed !== undefined)
      throw new HoldfastError("conflict", `source ${changed} is pinned to ${pins[changed]} already`);
    if (added.length > 0) await recordEvent(tx, attempt, "pins.recorded", { phase, pins });
    return { pins, missing: Object.keys(plan.sources).filter((source) => pins[source] === undefined) };
  });
}

export function reportResult(
  db: Database,
  identity: SandboxIdentity,
  result: Readonly<Record<string, unknown>>,
): Promise<void> {
  const text = canonicalJson(result);
  if (Buffer.byteLength(text) > callbackLimits.resultBytesMax) {
    throw new HoldfastError(
      "payload_too_large",
      `a result has at most ${callbackLimits.resultBytesMax} bytes`,
    );
  }
  return reported(db, identity, "reportResult", async (tx, { attempt, phase }) => {
    if ((await tx.run(sql.reportResult, { attempt, phase, result })) === 1) {
      await recordEvent(tx, attempt, "phase.result", { phase });
      return;
    }
    const stored = await tx.run(sql.readResult, { attempt, phase });
    if (canonicalJson(stored?.result) !== text)
      throw new HoldfastError("conflict", `phase ${phase} has another result already`);
  });
}

/** Where an object's bytes live: its owner stands in the key, and no two attempts share one (E18). */
function objectKey(identity: SandboxIdentity, reporter: Reporter, name: string): BlobKey {
  return `${identity.tenant}/jobs/${reporter.job}/${reporter.ordinal}/${reporter.phase}/${identity.sandbox}/${name}`;
}

const capabilityLifetimeMax = microseconds(15n * 60_000_000n);

/** A capability never outlives the deadline of whoever asked for it. */
function lifetime(deadline: Instant, now: Instant): Microseconds {
  const left = deadline - now;
  return microseconds(left < capabilityLifetimeMax ? left : capabilityLifetimeMax);
}

export interface Grant extends Capability {
  readonly content: BlobContent;
  readonly mediaType: string;
}

/** A promise of one object with its length and digest, and the capability to send exactly that (E18). */
export async function promiseObject(
  db: Database,
  blobs: BlobStore,
  identity: SandboxIdentity,
  name: string,
  request: UploadRequest,
): Promise<Capability> {
  if (request.bytes > callbackLimits.objectBytesMax) {
    throw new HoldfastError(
      "payload_too_large",
      `an object has at most ${callbackLimits.objectBytesMax} bytes`,
    );
  }
  const media_type = request.media_type ?? "application/octet-stream";
  const granted = await reported(db, identity, "promiseObject", async (tx, reporter) => {
    const { attempt, phase } = reporter;
    const key = objectKey(identity, reporter, name);
    const object = { attempt, phase, name };
    if ((await tx.run(objects.readObject, object)) === undefined) {
      const { count } = await tx.run(objects.countObjects, { attempt, phase });
      if (count >= callbackLimits.objectsMax) {
        throw new HoldfastError("conflict", `a phase has at most ${callbackLimits.objectsMax} objects`);
      }
      await tx.run(objects.insertObject, {
        ...object,
        blob_key: key,
        bytes: BigInt(request.bytes),
        sha256: request.sha256,
        media_type,
        sandbox: identity.sandbox,
      });
      await recordEvent(tx, attempt, "object.promised", { phase, object: name, bytes: request.bytes });
    }
    const stored = await tx.run(objects.readObject, object);
    if (
      stored === undefined ||
      stored.bytes !== BigInt(request.bytes) ||
      stored.sha256 !== request.sha256 ||
      stored.media_type !== media_type
    ) {
      throw new HoldfastError("conflict", `object ${name} was promised with other content`);
    }
    return { key: stored.blob_key, lifetime: lifetime(reporter.deadline, tx.now) };
  });
  const content = { bytes: BigInt(request.bytes), sha256: request.sha256 };
  return blobs.grantUpload(granted.key, content, granted.lifetime);
}

/** The object is there: looked at in the store, then recorded. The look happens outside any transaction (S10). */
export async function completeObject(
  db: Database,
  blobs: BlobStore,
  identity: SandboxIdentity,
  name: string,
  request: CompleteRequest,
  signal: AbortSignal,
): Promise<void> {
  const promised = await reported(db, identity, "completeObject", async (tx, { attempt, phase }) => {
    const object = await tx.run(objects.readObject, { attempt, phase, name });
    if (object === undefined) throw new HoldfastError("not_found", `object ${name} was not promised`);
    if (object.bytes !== BigInt(request.bytes) || object.sha256 !== request.sha256) {
      throw new HoldfastError("conflict", `object ${name} was promised with other content`);
    }
    return object;
  });
  if (promised.stored_at !== null) return;
  if (!(await blobs.verify(promised.blob_key, promised, signal))) {
    throw new HoldfastError("content_mismatch", `the store has no object ${name} with the promised bytes`);
  }
  await reported(db, identity, "completeObject", async (tx, { attempt, phase }) => {
    if ((await tx.run(objects.storeObject, { attempt, phase, name })) === 1) {
      await recordEvent(tx, attempt, "object.stored", {
        phase,
        object: name,
        bytes: request.bytes,
        sha256: request.sha256,
      });
    }
  });
}

/** The capability to read one completed object of the same attempt. */
export async function grantObject(
  db: Database,
  blobs: BlobStore,
  identity: SandboxIdentity,
  from: { readonly phase: string; readonly name: string },
): Promise<Grant> {
  const found = await reported(db, identity, "grantObject", async (tx, reporter) => {
    const object = await tx.run(objects.readObject, { attempt: reporter.attempt, ...from });
    if (object?.stored_at == null || object.removed_at !== null) {
      throw new HoldfastError("not_found", `the attempt has no object ${from.phase}/${from.name}`);
    }
    return { object, lifetime: lifetime(reporter.deadline, tx.now) };
  });
  const { bytes, sha256, media_type, blob_key } = found.object;
  const content = { bytes, sha256 };
  const capability = await blobs.grantDownload(blob_key, content, found.lifetime);
  return { ...capability, content, mediaType: media_type };
}

/** Which object is the artifact, and what is in it. Published when the attempt succeeds, not before (E20). */
export function declareArtifact(
  db: Database,
  identity: SandboxIdentity,
  report: ArtifactReport,
): Promise<{ readonly object: string; readonly bytes: bigint; readonly sha256: string }> {
  const fault = artifactFault(report);
  if (fault !== null) throw new HoldfastError("invalid_request", fault.message, { fields: [fault] });
  return reported(db, identity, "declareArtifact", async (tx, { attempt, phase, kind }) => {
    if (kind !== "publish")
      throw new HoldfastError("conflict", `artifacts come from publish phases; ${phase} is ${kind}`);
    const object = await tx.run(objects.readObject, { attempt, phase, name: report.object });
    if (object?.stored_at == null)
      throw new HoldfastError("not_found", `phase ${phase} has no object ${report.object}`);
    const declared = await tx.run(objects.declareArtifact, {
      attempt,
      object: report.object,
      manifest: report.files,
    });
    if (declared === 1) {
      await recordEvent(tx, attempt, "artifact.declared", {
        phase,
        object: report.object,
        files: report.files.length,
      });
    } else {
      const stored = await tx.run(lockAttempt, { attempt });
      const same =
        stored?.artifact_object === report.object &&
        canonicalJson(stored.artifact_manifest) === canonicalJson(report.files);
      if (!same) throw new HoldfastError("conflict", "the attempt has declared another artifact already");
    }
    return { object: report.object, bytes: object.bytes, sha256: object.sha256 };
  });
}
