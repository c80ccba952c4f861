/**
 * One way to break each invariant, on the store of `liveThrough`. Triggers are off, and what a constraint would
 * refuse begins by dropping it: a restore, another program or a superuser could have done the same.
 */
export interface Corruption {
  /** The invariant that has to find it. */
  readonly check: string;
  readonly sql: string;
}

const published = "(select job_id from holdfast.jobs where state = 'succeeded')";
const running = "(select job_id from holdfast.jobs where state = 'running')";
const again = "(select job_id from holdfast.execution_attempts where outcome = 'failed')";
const active = "(select attempt_id from holdfast.execution_attempts where state = 'active')";
const cleaned = "(select attempt_id from holdfast.execution_attempts where state = 'cleaned')";
const failed = "(select attempt_id from holdfast.execution_attempts where outcome = 'failed')";
const alive = "(select sandbox_id from holdfast.sandbox_attempts where state = 'released')";
const drop = (table: string, constraint: string) =>
  `alter table holdfast.${table} drop constraint ${constraint}`;

const ofTable = (table: string, corruptions: readonly (readonly [check: string, change: string])[]) =>
  corruptions.map(([check, change]) => ({ check, sql: `update holdfast.${table} set ${change}` }));

export const corruptions: readonly Corruption[] = [
  ...kernel(),
  ...ofTable("sandbox_attempts", [
    ["stepStartsOnce", `step = 'source', state = 'stopped' where owner_id = ${cleaned}`],
    ["uidIsOneSandboxes", "uid = 'the-same'"],
    ["sandboxTimesAscend", "held_at = planned_at - interval '1 second' where state = 'removed'"],
    ["sandboxTimesAscend", "stopped_at = released_at - interval '1 microsecond' where state = 'removed'"],
    ["sandboxTimesAscend", `removed_at = now() where owner_id = ${active}`],
    ["stopIsProven", "stop_unproven_at = now() where state = 'removed'"],
    ["logIsWhole", "log_seq = log_seq + 1 where log_seq > 0"],
    ["logIsWhole", "log_bytes = log_bytes + 1 where log_seq > 0"],
    ["sandboxSpecHasItsDigest", 'spec = spec || \'{"env": {"PATH": "/tmp"}}\''],
    ["sandboxHasItsPhase", `exit_code = 1 where owner_id = ${cleaned}`],
    ["successWasRun", `released_at = null where owner_id = ${cleaned}`],
    ["sandboxHasItsPhase", `step = 'other' where sandbox_id = ${alive}`],
    ["sandboxHasItsPhase", `planned_at = planned_at - interval '1 minute' where sandbox_id = ${alive}`],
    ["endIsProven", `log_complete_at = null where owner_id = ${failed}`],
    ["endIsProven", `state = 'released', stopped_at = null where owner_id = ${failed}`],
    ["cleanedLeavesNothing", `state = 'stopped', removed_at = null where owner_id = ${cleaned}`],
  ]).map(dropIndexes("sandbox_attempts_one_start", "sandbox_attempts_one_alive")),
  {
    check: "logIsWhole",
    sql: "update holdfast.log_chunks set seq = 7",
  },
  { check: "logIsWhole", sql: "update holdfast.log_chunks set body = 'other'" },
  { check: "outputIsKept", sql: "delete from holdfast.log_archives" },
  {
    check: "outputIsKept",
    sql: `delete from holdfast.log_chunks where sandbox_id in
      (select sandbox_id from holdfast.sandbox_attempts where owner_id = ${active})`,
  },
  {
    check: "logRetentionHolds",
    sql: "update holdfast.log_archives set archived_at = now() - interval '3 hours', retain_until = now() - interval '2 hours'",
  },
  {
    check: "logRetentionHolds",
    sql: `${drop("log_archives", "log_archives_removed_after_retention")};
      update holdfast.log_archives set removed_at = now()`,
  },
  {
    check: "heldSandboxHasUid",
    sql: `${drop("sandbox_attempts", "sandbox_attempts_uid_before_start")};
      update holdfast.sandbox_attempts set uid = null where sandbox_id = ${alive}`,
  },
  {
    check: "stopIsProven",
    sql: `${drop("sandbox_attempts", "sandbox_attempts_stop_is_proven")};
      update holdfast.sandbox_attempts set stop_proof = null where state = 'removed'`,
  },
  {
    check: "ownerHasOneAlive",
    sql: `drop index holdfast.sandbox_attempts_one_alive;
      update holdfast.sandbox_attempts set state = 'planned' where owner_id = ${cleaned}`,
  },
  ...slots(),
  ...attempts(),
  ...phases(),
  ...jobs(),
  ...artifacts(),
];

function dropIndexes(...indexes: readonly string[]): (corruption: Corruption) => Corruption {
  const drops = indexes.map((index) => `drop index holdfast.${index};`).join(" ");
  const constraints = [
    drop("sandbox_attempts", "sandbox_attempts_step_ordinal"),
    drop("sandbox_attempts", "sandbox_attempts_stop_is_proven"),
  ].join("; ");
  return ({ check, sql }) => ({ check, sql: `${drops} ${constraints}; ${sql}` });
}

function kernel(): readonly Corruption[] {
  return [
    {
      check: "freeLeaseWakesWhenDue",
      sql: `${drop("leases", "leases_free_wake_when_due")};
        update holdfast.leases set wake_at = due_at + interval '1 hour' where holder is null`,
    },
    ...ofTable("leases", [
      ["leaseEpochWasDrawn", "epoch = 1000000 where kind = 'execution' and resource_id = " + active],
      ["leaseEpochWasDrawn", "epoch = 0 where holder is not null"],
      ["leaseEpochIsOneClaims", "epoch = 1"],
      ["leaseHasItsResource", `queue = 'elsewhere' where kind = 'execution' and resource_id = ${active}`],
      ["leaseHasItsResource", "priority = 0 where kind = 'admission'"],
      [
        "waitingKeepsItsPlace",
        "due_at = due_at - interval '1 day', wake_at = due_at - interval '1 day' where kind = 'admission'",
      ],
    ]),
    ...["admission", "execution", "retention"].map((kind) => ({
      check: "leaseHasItsResource",
      sql: `delete from holdfast.leases where kind = '${kind}'`,
    })),
    {
      check: "leaseHasItsResource",
      sql: `insert into holdfast.leases (tenant_id, kind, resource_id, due_at, wake_at)
        select tenant_id, 'execution', attempt_id, now(), now() from holdfast.execution_attempts where state = 'cleaned'`,
    },
    ...ofTable("resource_changes", [
      ["positionsHaveNoGap", "position = position + 1 where position > 3"],
      ["positionsHaveNoGap", "position = 2 where position = 3"],
      ["positionsHaveNoGap", "position = null where position = 1"],
      ["positionsHaveNoGap", "position = null"],
      ["versionsAscend", "resource_version = resource_version + 100 where resource_version % 2 = 0"],
      ["changesAreStamped", "position = null, at = now() - interval '2 minutes' where position = 1"],
      ["versionsAreInTheLog", "resource_version = resource_version + 1000"],
    ]),
    { check: "positionsHaveNoGap", sql: "update holdfast.change_counter set position = position + 1" },
    { check: "versionsAreInTheLog", sql: "delete from holdfast.resource_changes where kind = 'attempt'" },
    { check: "pendingPublicationHasLease", sql: "delete from holdfast.leases where kind = 'publication'" },
    {
      check: "pendingPublicationHasLease",
      sql: "update holdfast.publication_outbox set state = 'delivered', settled_at = now()",
    },
    { check: "pendingPublicationHasLease", sql: "delete from holdfast.publication_outbox" },
    {
      check: "pendingPublicationHasLease",
      sql: `with second as (
          insert into holdfast.publication_outbox (tenant_id, publication_id, source_kind, source_id, session_id, ordinal, destination, payload)
          select tenant_id, gen_random_uuid(), source_kind, gen_random_uuid(), session_id, ordinal + 1, destination, payload
          from holdfast.publication_outbox where state = 'pending' limit 1
          returning tenant_id, publication_id)
        insert into holdfast.leases (tenant_id, kind, resource_id, due_at, wake_at)
        select tenant_id, 'publication', publication_id, now(), now() from second`,
    },
    {
      check: "commandsAreAnswered",
      sql: `insert into holdfast.commands (tenant_id, command_id, principal_id, operation, target, fingerprint)
        values ('tenant-a', gen_random_uuid(), gen_random_uuid(), 'cancel', 'job', sha256(''))`,
    },
  ];
}

function slots(): readonly Corruption[] {
  return [
    ...ofTable("slots", [
      ["slotIsAnActiveAttempts", "tenant_id = null, attempt_id = null, taken_at = null"],
      ["slotIsAnActiveAttempts", `attempt_id = ${cleaned} where attempt_id is not null`],
      ["slotIsAnActiveAttempts", "pool = 'other' where attempt_id is not null"],
      ["slotHolderExists", "tenant_id = 'nobody' where attempt_id is not null"],
    ]),
    {
      check: "attemptHasOneSlot",
      sql: `${drop("slots", "slots_one_an_attempt")};
        update holdfast.slots set tenant_id = 'tenant-a', taken_at = now(), attempt_id = ${active}`,
    },
  ];
}

function attempts(): readonly Corruption[] {
  return [
    ...ofTable("execution_attempts", [
      ["ordinalsHaveNoGap", `ordinal = 2 where attempt_id = ${cleaned}`],
      ["jobAgreesWithAttempts", `outcome = 'cancelled' where attempt_id = ${cleaned}`],
      ["planHasItsDigest", "plan = jsonb_set(plan, '{attempts}', '2') where state = 'cleaned'"],
      [
        "deadlineHolds",
        "started_at = started_at - interval '1 day', deadline = deadline - interval '1 day' where state = 'active'",
      ],
      ["endIsProven", `finished_at = finished_at - interval '1 minute' where attempt_id = ${failed}`],
      ["cleaningIsNotLate", `finished_at = finished_at - interval '2 hours' where attempt_id = ${failed}`],
    ]),
    {
      check: "deadlineHolds",
      sql: `${drop("execution_attempts", "execution_attempts_deadline_within_three_hours")};
        update holdfast.execution_attempts set deadline = started_at + interval '181 minutes' where state = 'cleaned'`,
    },
    ...["outcome = 'cancelled', failure_code = null", "finished_at = now() + interval '1 hour'"].map(
      (change) => ({
        check: "attemptsFollowEachOther",
        sql: `update holdfast.execution_attempts set job_id = ${again}, ordinal = 2 where state = 'active';
        update holdfast.execution_attempts set ${change} where attempt_id = ${failed}`,
      }),
    ),
  ];
}

function phases(): readonly Corruption[] {
  return [
    ...ofTable("execution_phases", [
      ["phasesFollowThePlan", `kind = 'publish' where attempt_id = ${active} and number = 2`],
      ["phasesFollowThePlan", `number = number + 1 where attempt_id = ${active} and number = 3`],
      [
        "phasesFollowThePlan",
        `state = 'pending', finished_at = null where attempt_id = ${cleaned} and number = 3`,
      ],
      [
        "phasesFollowThePlan",
        `state = 'skipped', finished_at = now() where attempt_id = ${active} and number = 2`,
      ],
      [
        "phaseWaitsForTheOneBefore",
        `started_at = started_at - interval '1 hour' where attempt_id = ${cleaned} and number = 2`,
      ],
      [
        "phaseWaitsForTheOneBefore",
        `state = 'failed', failure_code = 'x', failure_message = 'y' where attempt_id = ${cleaned} and number = 1`,
      ],
      ["phaseWaitsForTheOneBefore", `started_at = now() where attempt_id = ${active} and number = 2`],
      [
        "sandboxHasItsPhase",
        `state = 'succeeded', finished_at = now() where attempt_id = ${active} and number = 1`,
      ],
    ]),
    {
      check: "phaseWaitsForTheOneBefore",
      sql: `update holdfast.sandbox_attempts set stopped_at = now() + interval '1 hour'
        where owner_id = ${cleaned} and step = 'compile'`,
    },
    { check: "pinsCameBefore", sql: "delete from holdfast.source_pins" },
    ...ofTable("source_pins", [
      ["pinsCameBefore", "reported_at = now() + interval '1 hour'"],
      ["pinIsOfASource", "reported_at = reported_at - interval '1 hour'"],
      ["pinIsOfASource", "source = 'other'"],
      [
        "pinIsOfASource",
        "sandbox_id = (select sandbox_id from holdfast.sandbox_attempts where step = 'publish')",
      ],
    ]),
  ];
}

function jobs(): readonly Corruption[] {
  return [
    ...ofTable("jobs", [
      ["jobAgreesWithAttempts", `state = 'running', finished_at = null where job_id = ${published}`],
      ["jobAgreesWithAttempts", `state = 'queued' where job_id = ${running}`],
      [
        "jobAgreesWithAttempts",
        `state = 'failed', finished_at = now(), failure_code = 'x' where job_id = ${published}`,
      ],
      ["jobAgreesWithAttempts", `state = 'succeeded', finished_at = now() where job_id = ${again}`],
      [
        "oneOfCancellationAndSuccess",
        `state = 'cancelled', finished_at = now(), cancel_requested_at = now() + interval '1 hour', cancel_reason = ''
          where job_id = ${again}`,
      ],
      ["oneOfCancellationAndSuccess", `state = 'failed', finished_at = now() where job_id = ${again}`],
      ["versionsAreInTheLog", `resource_version = resource_version + 1 where job_id = ${running}`],
    ]),
    {
      check: "oneOfCancellationAndSuccess",
      sql: `${drop("jobs", "jobs_success_was_not_cancelled")};
        update holdfast.jobs set cancel_requested_at = now(), cancel_reason = '' where job_id = ${published}`,
    },
    {
      check: "enrolledIsNotClaimed",
      sql: `${drop("jobs", "jobs_enrolled_are_not_claimed")};
        update holdfast.jobs set claimed_by = 'host' where job_id = ${running}`,
    },
    { check: "specHasItsDigest", sql: `update holdfast.job_specs set spec = spec || '{"attempts": 2}'` },
  ];
}

function artifacts(): readonly Corruption[] {
  return [
    { check: "artifactIsASuccessfulJobs", sql: "delete from holdfast.artifacts" },
    ...ofTable("artifacts", [
      ["artifactIsASuccessfulJobs", `job_id = ${again}`],
      ["artifactIsAStoredObject", "sha256 = repeat('b', 64)"],
      [
        "retentionHolds",
        "published_at = published_at - interval '1 day', retain_until = retain_until - interval '1 day'",
      ],
    ]),
    ...ofTable("attempt_objects", [
      ["artifactIsAStoredObject", "stored_at = null"],
      ["artifactIsAStoredObject", "removed_at = now()"],
      ["cleanedLeavesNothing", "blob_key = 'another'"],
    ]),
    {
      check: "retentionHolds",
      sql: `${drop("artifacts", "artifacts_removed_after_retention")}; update holdfast.artifacts set removed_at = now()`,
    },
  ];
}
