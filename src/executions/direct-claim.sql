-- The direct claimant's claims: jobs of the queue that nobody enrolled, each run as containers of one host (E13).
-- A claim is (claimed_by, claimed_until); `claimed_by` is `HOST/RUN`, new for each run of a claimant, so that a
-- write under an older claim finds nothing to write to. Every statement says `enrolled_at is null`, and the
-- constraint jobs_enrolled_are_not_claimed refuses a claimant that forgets to.

-- Its own claim, or one of this host that was not renewed: its container is here, if anywhere.
-- name: lockAbandonedClaim :maybe
select j.job_id, j.container_id from holdfast.jobs j
where j.tenant_id = holdfast.current_tenant() and j.state = 'running' and j.claimed_by is not null
  and j.enrolled_at is null
  and (j.claimed_by = :claimant or (split_part(j.claimed_by, '/', 1) = :host and j.claimed_until <= :now))
order by j.claimed_by = :claimant desc, j.queued_at, j.job_id
limit 1
for no key update of j skip locked;

-- name: lockOldestHistorical :maybe
select j.job_id from holdfast.jobs j
where j.tenant_id = holdfast.current_tenant() and j.state = 'queued' and j.enrolled_at is null
order by j.queued_at, j.job_id
limit 1
for no key update of j skip locked;

-- The row is locked before.
-- name: claimJob :exec
-- null: container
update holdfast.jobs
set claimed_by = :claimant, claimed_until = holdfast.ledger_now() + holdfast.microseconds(:claim_us),
    container_id = :container
where tenant_id = holdfast.current_tenant() and job_id = :job and enrolled_at is null;

-- Says too whether the job should go on. No row: the claim is lost.
-- name: renewClaim :maybe
update holdfast.jobs
set claimed_until = holdfast.ledger_now() + holdfast.microseconds(:claim_us)
where tenant_id = holdfast.current_tenant() and job_id = :job and claimed_by = :claimant
  and state = 'running' and enrolled_at is null and claimed_until > holdfast.ledger_now()
returning cancel_requested_at is not null as "cancelled!", holdfast.ledger_now() as "now!";

-- Committed before the container is started, so that one which runs is always known.
-- name: recordContainer :maybe
update holdfast.jobs set container_id = :container
where tenant_id = holdfast.current_tenant() and job_id = :job and claimed_by = :claimant
  and state = 'running' and enrolled_at is null and claimed_until > holdfast.ledger_now()
returning cancel_requested_at is not null as "cancelled!";

-- name: lockClaim :maybe
select j.cancel_requested_at is not null as "cancelled!" from holdfast.jobs j
where j.tenant_id = holdfast.current_tenant() and j.job_id = :job and j.claimed_by = :claimant
  and j.state = 'running' and j.enrolled_at is null and j.claimed_until > holdfast.ledger_now()
for no key update of j;

-- Another of this host may take it at once.
-- name: releaseClaim :exec
update holdfast.jobs set claimed_until = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and job_id = :job and claimed_by = :claimant
  and state = 'running' and claimed_until > holdfast.ledger_now();

-- name: listEnded :many
select j.job_id from holdfast.jobs j
where j.tenant_id = holdfast.current_tenant() and j.job_id = any (:jobs::uuid[])
  and j.state in ('succeeded', 'failed', 'cancelled');
