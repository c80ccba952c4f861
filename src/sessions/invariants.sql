-- What is always true of sessions, activations and what they remember. A row for each thing that is wrong, none when
-- all is well.

-- The head is the last of revisions without a gap (S3, S7).
-- name: headIsTheLastRevision :many
select s.session_id::text as "resource!",
  format('its head is at %s, and it has %s revisions up to %s', s.head_revision, count(r.revision), max(r.revision)) as "problem!"
from holdfast.cloud_sessions s
left join holdfast.bundle_revisions r on r.tenant_id = s.tenant_id and r.session_id = s.session_id
where s.tenant_id = holdfast.current_tenant()
group by s.tenant_id, s.session_id, s.head_revision
having count(r.revision) <> s.head_revision or coalesce(max(r.revision), 0) <> s.head_revision
limit :limit;

-- Each revision was committed by exactly one activation, whose outcome it is, or begins a copy (S7).
-- name: revisionHasItsCheckpoint :many
select coalesce(r.session_id, c.session_id, a.session_id) || '/' || coalesce(r.revision, c.revision, a.revision) as "resource!",
  case when r.revision is null then 'it is committed, and is not there'
    when c.revision is null then 'no activation committed it'
    when a.activation_uid is null then 'its checkpoint is of an activation that has another outcome'
    else 'it begins a copy, and an activation committed it' end as "problem!"
from (select * from holdfast.bundle_revisions b where b.tenant_id = holdfast.current_tenant()) r
full join (select * from holdfast.checkpoints k where k.tenant_id = holdfast.current_tenant()) c
  on c.session_id = r.session_id and c.revision = r.revision
full join (
  select * from holdfast.activations n where n.tenant_id = holdfast.current_tenant() and n.state = 'committed'
) a on a.activation_uid = c.activation_uid and a.session_id = c.session_id and a.revision = c.revision
where r.revision is null
   or (r.forked_session is null) <> (c.revision is not null)
   or (c.revision is not null and a.activation_uid is null)
limit :limit;

-- What was committed is what the activation's own sandbox, which ended well, promised and the store had, or what the
-- revision before has (S13).
-- name: revisionIsWhatWasVerified :many
select c.session_id || '/' || c.revision as "resource!",
  case when s.sandbox_id is null then 'what it was committed from did not end well, or is of another activation'
    else 'its bytes are neither a verified candidate of its activation nor those of the revision before' end as "problem!"
from holdfast.checkpoints c
join holdfast.bundle_revisions r on r.tenant_id = c.tenant_id and r.session_id = c.session_id and r.revision = c.revision
left join holdfast.sandbox_attempts s on s.tenant_id = c.tenant_id and s.sandbox_id = c.sandbox_id
  and s.owner_kind = 'activation' and s.owner_id = c.activation_uid and s.outcome = 'exited' and s.exit_code = 0
  and s.released_at is not null
left join holdfast.bundle_candidates k on k.tenant_id = c.tenant_id and k.activation_uid = c.activation_uid
  and k.sandbox_id = c.sandbox_id and k.blob_key = r.blob_key and k.bytes = r.bytes and k.sha256 = r.sha256
  and k.verified_at <= r.committed_at and k.removed_at is null
left join holdfast.bundle_revisions b on b.tenant_id = r.tenant_id and b.session_id = r.session_id and b.revision = r.revision - 1
where c.tenant_id = holdfast.current_tenant()
  and (s.sandbox_id is null or (k.sandbox_id is null and r.blob_key is distinct from b.blob_key))
limit :limit;

-- A reply is in the outbox exactly when its activation is committed (S7, S8).
-- name: replyIsACommittedOnes :many
select coalesce(a.activation_uid, o.source_id)::text as "resource!",
  case when o.source_id is null then 'it is committed, and its reply is in no outbox'
    else 'its reply is in the outbox, and it is not committed' end as "problem!"
from (
  select n.activation_uid from holdfast.activations n
  where n.tenant_id = holdfast.current_tenant() and n.state = 'committed'
) a
full join (
  select distinct p.source_id from holdfast.publication_outbox p
  where p.tenant_id = holdfast.current_tenant() and p.source_kind = 'activation'
) o on o.source_id = a.activation_uid
where a.activation_uid is null or o.source_id is null
limit :limit;

-- Activations of a session have their places without a gap, and none begins before those in front of it have ended.
-- name: activationsGoInOrder :many
select o.session_id || '/' || o.activation_id as "resource!",
  case when o.ordinal <> o.place then format('it has place %s and is number %s', o.ordinal, o.place)
    when o.ordinal > o.admitted then format('it has place %s, and %s were admitted', o.ordinal, o.admitted)
    when o.revision <= o.revision_before then format('it committed revision %s, and one before it %s', o.revision, o.revision_before)
    else format('it is %s, and the first of the session that has not ended has place %s', o.state, o.unfinished) end as "problem!"
from (
  select a.session_id, a.activation_id, a.ordinal, a.state, a.revision, s.admitted,
    row_number() over line as place,
    max(a.revision) over (line rows between unbounded preceding and 1 preceding) as revision_before,
    min(a.ordinal) filter (where a.finished_at is null) over (partition by a.session_id) as unfinished
  from holdfast.activations a
  join holdfast.cloud_sessions s on s.tenant_id = a.tenant_id and s.session_id = a.session_id
  where a.tenant_id = holdfast.current_tenant()
  window line as (partition by a.session_id order by a.ordinal)
) o
where o.ordinal <> o.place or o.ordinal > o.admitted or o.revision <= o.revision_before
   or (o.state in ('running', 'committing', 'waiting', 'committed', 'failed') and o.unfinished < o.ordinal)
limit :limit;

-- What is at work began from the head, which therefore has not moved since.
-- name: workBeganFromTheHead :many
select a.session_id || '/' || a.activation_id as "resource!",
  format('it is %s and began from %s, and the head is at %s', a.state, a.base_revision, s.head_revision) as "problem!"
from holdfast.activations a
join holdfast.cloud_sessions s on s.tenant_id = a.tenant_id and s.session_id = a.session_id
where a.tenant_id = holdfast.current_tenant()
  and ((a.state in ('running', 'committing', 'waiting') and a.base_revision <> s.head_revision)
    or (a.state = 'committed' and a.base_revision <> a.revision - 1))
limit :limit;

-- Nothing of an activation can run but while it is running.
-- name: onlyARunHasSandboxes :many
select s.name as "resource!",
  format('it is %s, and its activation %s', s.state, coalesce('is ' || a.state, 'does not exist')) as "problem!"
from holdfast.sandbox_attempts s
left join holdfast.activations a on a.tenant_id = s.tenant_id and a.activation_uid = s.owner_id
where s.tenant_id = holdfast.current_tenant() and s.owner_kind = 'activation'
  and (a.state is null or (s.state in ('planned', 'held', 'released', 'stopping') and a.state <> 'running'))
limit :limit;

-- What has something to do has a lease, so that somebody comes; what has a lease exists (S4, S12).
-- name: workHasItsLease :many
select need.kind || '/' || need.resource_id as "resource!", format('it is %s, and no lease makes it due', need.reason) as "problem!"
from (
  select 'session' as kind, s.session_id as resource_id, 'not observed as it is wanted' as reason
  from holdfast.cloud_sessions s
  where s.tenant_id = holdfast.current_tenant() and s.observed_generation < s.generation
  union
  select 'session', a.session_id, 'at work'
  from holdfast.activations a
  where a.tenant_id = holdfast.current_tenant() and a.state in ('running', 'committing')
  union
  select 'session', a.session_id, 'about to begin'
  from holdfast.activations a
  join holdfast.cloud_sessions s on s.tenant_id = a.tenant_id and s.session_id = a.session_id and s.desired_state <> 'suspended'
  where a.tenant_id = holdfast.current_tenant() and a.state = 'queued' and not exists (
    select from holdfast.activations w
    where w.tenant_id = a.tenant_id and w.session_id = a.session_id and w.state = 'waiting')
  union
  select 'activation', a.activation_uid, 'to be cleaned'
  from holdfast.activations a
  where a.tenant_id = holdfast.current_tenant() and a.finished_at is not null and a.cleaned_at is null
  union
  select 'retention', l.owner_id, 'archived'
  from holdfast.log_archives l
  join holdfast.activations a on a.tenant_id = l.tenant_id and a.activation_uid = l.owner_id
  where l.tenant_id = holdfast.current_tenant() and l.owner_kind = 'activation' and l.removed_at is null
  union
  select 'retention', s.session_id, 'deleted, with bundles'
  from holdfast.cloud_sessions s
  where s.tenant_id = holdfast.current_tenant() and s.deleted_at is not null and exists (
    select from holdfast.bundle_revisions r
    where r.tenant_id = s.tenant_id and r.session_id = s.session_id and r.removed_at is null)
) need
left join holdfast.leases l on l.tenant_id = holdfast.current_tenant() and l.kind = need.kind and l.resource_id = need.resource_id
where l.kind is null
limit :limit;

-- name: leaseHasItsSession :many
select l.kind || '/' || l.resource_id as "resource!", 'it has a lease, and does not exist' as "problem!"
from holdfast.leases l
where l.tenant_id = holdfast.current_tenant() and l.kind in ('session', 'activation')
  and not exists (
    select from holdfast.cloud_sessions s
    where l.kind = 'session' and s.tenant_id = l.tenant_id and s.session_id = l.resource_id)
  and not exists (
    select from holdfast.activations a
    where l.kind = 'activation' and a.tenant_id = l.tenant_id and a.activation_uid = l.resource_id)
limit :limit;

-- name: cleanedActivationLeavesNothing :many
select a.session_id || '/' || a.activation_id as "resource!", 'it is cleaned, but ' || left_over.what as "problem!"
from holdfast.activations a
cross join lateral (
  select format('the sandbox %s is %s', s.name, s.state) as what from holdfast.sandbox_attempts s
  where s.tenant_id = a.tenant_id and s.owner_kind = 'activation' and s.owner_id = a.activation_uid and s.state <> 'removed'
  union all
  select format('its candidate %s is there', c.sha256) from holdfast.bundle_candidates c
  where c.tenant_id = a.tenant_id and c.activation_uid = a.activation_uid and c.removed_at is null
    and not exists (select from holdfast.bundle_revisions r where r.tenant_id = c.tenant_id and r.blob_key = c.blob_key)
) left_over
where a.tenant_id = holdfast.current_tenant() and a.cleaned_at is not null
limit :limit;

-- name: activationIsCleanedInTime :many
select a.session_id || '/' || a.activation_id as "resource!",
  format('it ended at %s, and what it left outside is not removed', a.finished_at) as "problem!"
from holdfast.activations a
where a.tenant_id = holdfast.current_tenant() and a.cleaned_at is null
  and a.finished_at < (select holdfast.ledger_now()) - interval '1 hour'
limit :limit;

-- Bytes that somebody still remembers are not marked as gone, and a deleted session's go (S13).
-- name: bundleGoesWithItsSession :many
select r.session_id || '/' || r.revision as "resource!",
  format('its bytes were removed at %s, and the session is %s', r.removed_at, s.observed_state) as "problem!"
from holdfast.bundle_revisions r
join holdfast.cloud_sessions s on s.tenant_id = r.tenant_id and s.session_id = r.session_id
where r.tenant_id = holdfast.current_tenant() and r.removed_at is not null and s.deleted_at is null
limit :limit;

-- name: sessionVersionsAreInTheLog :many
select v.kind || '/' || v.resource_id as "resource!",
  format('it is at version %s, its last change at %s', v.resource_version, coalesce(c.version::text, 'none')) as "problem!"
from (
  select 'agent' as kind, g.agent_id as resource_id, g.resource_version from holdfast.agents g
  where g.tenant_id = holdfast.current_tenant()
  union all
  select 'session', s.session_id, s.resource_version from holdfast.cloud_sessions s
  where s.tenant_id = holdfast.current_tenant()
  union all
  select 'activation', a.activation_uid, a.resource_version from holdfast.activations a
  where a.tenant_id = holdfast.current_tenant()
) v
cross join holdfast.change_counter f
left join lateral (
  select max(r.resource_version) as version from holdfast.resource_changes r
  where r.tenant_id = holdfast.current_tenant() and r.kind = v.kind and r.resource_id = v.resource_id
) c on true
where case when c.version is null then f.floor = 0 else c.version <> v.resource_version end
limit :limit;

-- For the digests, which SQL can't compute: in order, after the last of the page before.
-- name: pageTemplates :many
-- null: after
select t.agent_id || '/' || t.version as "key!", t.template, t.template_digest from holdfast.agent_templates t
where t.tenant_id = holdfast.current_tenant() and (:after::text is null or t.agent_id || '/' || t.version > :after)
order by 1
limit :limit;

-- name: pageStimuli :many
-- null: after
select a.activation_uid, a.session_id, a.activation_id, a.content, a.content_digest from holdfast.activations a
where a.tenant_id = holdfast.current_tenant() and (:after::uuid is null or a.activation_uid > :after)
order by a.activation_uid
limit :limit;
