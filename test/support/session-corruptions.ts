import type { Corruption } from "./corruptions.ts";

const drop = (table: string, constraint: string) =>
  `alter table holdfast.${table} drop constraint ${constraint}`;
const update = (table: string, check: string, change: string): Corruption => ({
  check,
  sql: `update holdfast.${table} set ${change}`,
});

const talk = "(select session_id from holdfast.checkpoints where revision = 3)";
const cleaned =
  "activation_uid in (select activation_uid from holdfast.activations where cleaned_at is not null)";
const noHead = `${drop("cloud_sessions", "cloud_sessions_head_exists")};`;

/** One way to break each invariant of sessions, on the store of `liveThroughSessions`. */
export const sessionCorruptions: readonly Corruption[] = [
  {
    check: "headIsTheLastRevision",
    sql: `${noHead} update holdfast.cloud_sessions set head_revision = head_revision + 1`,
  },
  {
    check: "headIsTheLastRevision",
    sql: `delete from holdfast.checkpoints where revision = 1; delete from holdfast.bundle_revisions where revision = 1 and session_id = ${talk}`,
  },
  { check: "revisionHasItsCheckpoint", sql: "delete from holdfast.checkpoints where revision = 1" },
  update("bundle_revisions", "revisionHasItsCheckpoint", "forked_session = null, forked_revision = null"),
  update("activations", "revisionHasItsCheckpoint", "revision = revision + 5 where revision = 3"),
  update("bundle_revisions", "revisionIsWhatWasVerified", "blob_key = 'other' where revision = 2"),
  update("bundle_candidates", "revisionIsWhatWasVerified", "sha256 = repeat('c', 64)"),
  update("bundle_candidates", "revisionIsWhatWasVerified", "verified_at = null"),
  update("bundle_candidates", "revisionIsWhatWasVerified", "verified_at = now() + interval '1 hour'"),
  update("bundle_candidates", "revisionIsWhatWasVerified", "removed_at = now()"),
  update("sandbox_attempts", "revisionIsWhatWasVerified", "exit_code = 1"),
  {
    check: "replyIsACommittedOnes",
    sql: "delete from holdfast.publication_outbox where ordinal = 1",
  },
  update(
    "publication_outbox",
    "replyIsACommittedOnes",
    "source_id = (select activation_uid from holdfast.activations where state = 'failed') where ordinal = 3",
  ),
  update("activations", "activationsGoInOrder", "ordinal = ordinal + 100"),
  update("cloud_sessions", "activationsGoInOrder", "admitted = 0"),
  {
    check: "activationsGoInOrder",
    sql: `update holdfast.activations set state = 'queued', finished_at = null, cleaned_at = null, revision = null where revision = 1`,
  },
  update("activations", "activationsGoInOrder", "revision = 9 where revision = 1"),
  update("activations", "workBeganFromTheHead", "base_revision = base_revision + 1 where state = 'running'"),
  update("activations", "workBeganFromTheHead", "base_revision = 0 where revision = 3"),
  update("activations", "onlyARunHasSandboxes", "state = 'queued' where state = 'running'"),
  update("sandbox_attempts", "onlyARunHasSandboxes", "owner_id = gen_random_uuid() where state = 'released'"),
  ...["session", "activation", "retention"].map((kind) => ({
    check: "workHasItsLease",
    sql: `delete from holdfast.leases where kind = '${kind}'`,
  })),
  ...["session", "activation"].map((kind) =>
    update("leases", "leaseHasItsSession", `resource_id = gen_random_uuid() where kind = '${kind}'`),
  ),
  {
    check: "cleanedActivationLeavesNothing",
    sql: "update holdfast.sandbox_attempts set state = 'stopped', removed_at = null where state = 'removed'",
  },
  {
    check: "cleanedActivationLeavesNothing",
    sql: `update holdfast.bundle_candidates set removed_at = null, blob_key = sandbox_id::text where ${cleaned}`,
  },
  update(
    "activations",
    "activationIsCleanedInTime",
    "finished_at = now() - interval '2 hours', cleaned_at = null where finished_at is not null",
  ),
  update("bundle_revisions", "bundleGoesWithItsSession", "removed_at = now()"),
  ...["agents", "cloud_sessions", "activations"].map((table) =>
    update(table, "sessionVersionsAreInTheLog", "resource_version = resource_version + 1"),
  ),
  {
    check: "sessionVersionsAreInTheLog",
    sql: "delete from holdfast.resource_changes where kind = 'session'",
  },
  update("agent_templates", "templateHasItsDigest", `template = template || '{"tries": 5}'`),
  update("activations", "stimulusHasItsDigest", `content = '{"text": "other"}'`),
];
