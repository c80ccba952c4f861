-- 0010 Bundles and checkpoints: what a session remembers, and the one way in which that changes.
--
-- A candidate is promised by a sandbox with length and digest before its bytes come, and is verified in the store
-- before it may be committed. A revision is what was committed: it never changes, and is unique by session and number
-- (S3). It may have the content of the one before it, or none at all. A checkpoint says which activation committed
-- which revision, under which lease.
--
-- commit_checkpoint() is the only way to a checkpoint, and does all of it in one transaction or nothing (S7).

create table holdfast.bundle_candidates (
  tenant_id text not null,
  activation_uid uuid not null,
  sandbox_id uuid not null,
  sha256 text not null constraint bundle_candidates_sha256 check (sha256 ~ '^[0-9a-f]{64}$'),
  bytes bigint not null constraint bundle_candidates_bytes check (bytes between 1 and 17179869184),
  blob_key text not null constraint bundle_candidates_key check (length(blob_key) between 1 and 512),
  promised_at timestamptz not null default holdfast.ledger_now(),
  verified_at timestamptz,
  removed_at timestamptz,
  primary key (tenant_id, activation_uid, sandbox_id, sha256),
  constraint bundle_candidates_key_taken unique (tenant_id, blob_key),
  foreign key (tenant_id, activation_uid) references holdfast.activations (tenant_id, activation_uid),
  foreign key (tenant_id, sandbox_id) references holdfast.sandbox_attempts
);
create trigger bundle_candidates_keep before update on holdfast.bundle_candidates
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'activation_uid', 'sandbox_id', 'sha256', 'bytes', 'blob_key', 'promised_at');
create trigger bundle_candidates_write_once before update on holdfast.bundle_candidates
  for each row execute function holdfast.write_once('verified_at', 'removed_at');

create table holdfast.bundle_revisions (
  tenant_id text not null,
  session_id uuid not null,
  revision bigint not null constraint bundle_revisions_revision check (revision >= 1),
  -- All three null: the session has no bundle yet.
  blob_key text constraint bundle_revisions_key check (length(blob_key) between 1 and 512),
  bytes bigint constraint bundle_revisions_bytes check (bytes >= 1),
  sha256 text constraint bundle_revisions_sha256 check (sha256 ~ '^[0-9a-f]{64}$'),
  -- A session that began as a copy has its first revision from another one.
  forked_session uuid,
  forked_revision bigint,
  committed_at timestamptz not null default holdfast.ledger_now(),
  removed_at timestamptz,
  primary key (tenant_id, session_id, revision),
  foreign key (tenant_id, session_id) references holdfast.cloud_sessions,
  foreign key (tenant_id, forked_session, forked_revision) references holdfast.bundle_revisions (tenant_id, session_id, revision),
  constraint bundle_revisions_content check ((blob_key is null) = (bytes is null) and (blob_key is null) = (sha256 is null)),
  constraint bundle_revisions_fork check ((forked_session is null) = (forked_revision is null) and (forked_session is null or revision = 1))
);
create index bundle_revisions_by_key on holdfast.bundle_revisions (tenant_id, blob_key) where blob_key is not null;
create trigger bundle_revisions_keep before update on holdfast.bundle_revisions
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'session_id', 'revision', 'blob_key', 'bytes', 'sha256', 'forked_session', 'forked_revision', 'committed_at');
create trigger bundle_revisions_removed_once before update on holdfast.bundle_revisions
  for each row execute function holdfast.write_once('removed_at');

create table holdfast.checkpoints (
  tenant_id text not null,
  session_id uuid not null,
  revision bigint not null,
  activation_uid uuid not null,
  sandbox_id uuid not null,
  holder uuid not null,
  epoch bigint not null,
  committed_at timestamptz not null default holdfast.ledger_now(),
  primary key (tenant_id, session_id, revision),
  constraint checkpoints_once_an_activation unique (tenant_id, activation_uid),
  foreign key (tenant_id, session_id, revision) references holdfast.bundle_revisions (tenant_id, session_id, revision),
  foreign key (tenant_id, activation_uid) references holdfast.activations (tenant_id, activation_uid),
  foreign key (tenant_id, sandbox_id) references holdfast.sandbox_attempts
);
create trigger checkpoints_keep before update on holdfast.checkpoints
  for each row execute function holdfast.keep_columns(
    'tenant_id', 'session_id', 'revision', 'activation_uid', 'sandbox_id', 'holder', 'epoch', 'committed_at');

-- The head names a revision that is there, when the transaction ends.
alter table holdfast.cloud_sessions add constraint cloud_sessions_head_exists
  foreign key (tenant_id, session_id, head_key) references holdfast.bundle_revisions (tenant_id, session_id, revision)
  deferrable initially deferred;

-- A revision is the next one of its session, and an activation that committed has its checkpoint: no other order of
-- writes makes sense, whoever writes.
create function holdfast.require_next_revision() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
declare
  head bigint;
begin
  -- A session that isn't there, or isn't seen, is refused by the foreign key or by row-level security.
  select s.head_revision into head from holdfast.cloud_sessions s
  where s.tenant_id = new.tenant_id and s.session_id = new.session_id
  for no key update;
  if new.revision <> head + 1 then
    raise exception using errcode = 'HF009', message = format('the head is at %s: %s is not the next revision', head, new.revision);
  end if;
  return new;
end
$$;
create trigger bundle_revisions_are_next before insert on holdfast.bundle_revisions
  for each row execute function holdfast.require_next_revision();

create function holdfast.require_checkpoint() returns trigger
  language plpgsql security invoker set search_path = pg_catalog, pg_temp as $$
begin
  if not exists (
    select from holdfast.checkpoints c
    where c.tenant_id = new.tenant_id and c.session_id = new.session_id and c.activation_uid = new.activation_uid
      and c.revision = new.revision) then
    raise exception using errcode = 'HF008',
      message = format('activation %s has no checkpoint of revision %s', new.activation_id, new.revision);
  end if;
  return new;
end
$$;
create trigger activations_require_checkpoint before update of state on holdfast.activations
  for each row when (new.state = 'committed' and old.state <> 'committed')
  execute function holdfast.require_checkpoint();

do $$
declare
  name text;
begin
  foreach name in array array['bundle_candidates', 'bundle_revisions', 'checkpoints'] loop
    execute format('alter table holdfast.%I enable row level security', name);
    execute format('alter table holdfast.%I force row level security', name);
    execute format('create policy %I on holdfast.%I to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention
      using (tenant_id = holdfast.current_tenant()) with check (tenant_id = holdfast.current_tenant())', name || '_tenant', name);
    execute format('grant select on holdfast.%I to holdfast_gateway, holdfast_controller, holdfast_operator, holdfast_retention', name);
    execute format('grant insert on holdfast.%I to holdfast_controller', name);
  end loop;
end
$$;
grant update (verified_at, removed_at) on holdfast.bundle_candidates to holdfast_controller;
-- A session that begins as a copy of another gets its first revision with its creation.
grant insert on holdfast.bundle_revisions to holdfast_gateway;
grant update (removed_at) on holdfast.bundle_revisions to holdfast_retention;

-- Commits what an activation proposed. In this order, each under the locks of those before it:
--   1. the lease on the session is this holder's, under this epoch, and has not expired (HF001);
--   2. the activation is the one at work, nobody has cancelled it, and its proposal is whole and verified (HF010);
--   3. the head is the one that is expected, and the one that the run began from (HF009);
--   4. the next revision is inserted, with its checkpoint;
--   5. the head moves to it, and the activation has its outcome;
--   6. the reply is in the outbox, once for each destination: due for those outside, there already for the inbox.
-- The changes are appended with it. The same commit again under the same lease gives the same revision.
create function holdfast.commit_checkpoint(
  p_session uuid, p_activation uuid, p_holder uuid, p_epoch bigint, p_expected_head bigint, p_destinations text[]
) returns bigint
  language plpgsql volatile security invoker set search_path = pg_catalog, pg_temp as $$
declare
  session holdfast.cloud_sessions;
  activation holdfast.activations;
  candidate holdfast.bundle_candidates;
  instant timestamptz;
  upcoming constant bigint := p_expected_head + 1;
  target text;
  inbox constant text := 'inbox';
begin
  perform holdfast.assert_fence('session', p_session, p_holder, p_epoch);
  select * into session from holdfast.cloud_sessions s
  where s.tenant_id = holdfast.current_tenant() and s.session_id = p_session for no key update;
  if not found then
    raise exception using errcode = 'HF010', message = 'there is no such session';
  end if;
  select * into activation from holdfast.activations a
  where a.tenant_id = session.tenant_id and a.session_id = p_session and a.activation_uid = p_activation for no key update;
  if not found then
    raise exception using errcode = 'HF010', message = 'the session has no such activation';
  elsif activation.state = 'committed' then
    if exists (
      select from holdfast.checkpoints c
      where c.tenant_id = session.tenant_id and c.activation_uid = p_activation and c.revision = upcoming
        and c.holder = p_holder and c.epoch = p_epoch) then
      return upcoming;
    end if;
    raise exception using errcode = 'HF010', message = format('it was committed as revision %s', activation.revision);
  elsif activation.state <> 'committing' then
    raise exception using errcode = 'HF010', message = format('the activation is %s', activation.state);
  elsif activation.cancel_requested_at is not null then
    raise exception using errcode = 'HF010', message = 'the activation was cancelled';
  elsif activation.required_action is not null or activation.output_fault_code is not null then
    raise exception using errcode = 'HF010', message = 'the activation has not proposed a checkpoint';
  elsif session.head_revision <> p_expected_head or activation.base_revision <> p_expected_head then
    raise exception using errcode = 'HF009',
      message = format('the head is at %s, the run began from %s, and %s was expected', session.head_revision, activation.base_revision, p_expected_head);
  end if;
  if activation.candidate_sha256 is not null then
    select * into candidate from holdfast.bundle_candidates c
    where c.tenant_id = session.tenant_id and c.activation_uid = p_activation
      and c.sandbox_id = activation.proposed_by and c.sha256 = activation.candidate_sha256
    for no key update;
    if not found or candidate.verified_at is null or candidate.removed_at is not null then
      raise exception using errcode = 'HF010', message = 'the candidate is not verified';
    end if;
  else
    -- Nothing changed: the next revision has what the head has.
    select r.blob_key, r.bytes, r.sha256 into candidate.blob_key, candidate.bytes, candidate.sha256
    from holdfast.bundle_revisions r
    where r.tenant_id = session.tenant_id and r.session_id = p_session and r.revision = p_expected_head;
  end if;
  instant := holdfast.ledger_now();
  insert into holdfast.bundle_revisions (tenant_id, session_id, revision, blob_key, bytes, sha256, committed_at)
  values (session.tenant_id, p_session, upcoming, candidate.blob_key, candidate.bytes, candidate.sha256, instant);
  insert into holdfast.checkpoints (tenant_id, session_id, revision, activation_uid, sandbox_id, holder, epoch, committed_at)
  values (session.tenant_id, p_session, upcoming, p_activation, activation.proposed_by, p_holder, p_epoch, instant);
  update holdfast.cloud_sessions s
  set head_revision = upcoming, resource_version = s.resource_version + 1
  where s.tenant_id = session.tenant_id and s.session_id = p_session
  returning * into session;
  update holdfast.activations a
  set state = 'committed', revision = upcoming, finished_at = instant, resource_version = a.resource_version + 1
  where a.tenant_id = session.tenant_id and a.activation_uid = p_activation
  returning * into activation;
  -- Sandboxes and lost candidates are removed after the end, beside what the session does next.
  insert into holdfast.leases (tenant_id, kind, resource_id, queue, due_at, wake_at)
  select l.tenant_id, 'activation', p_activation, l.queue, instant, instant from holdfast.leases l
  where l.tenant_id = session.tenant_id and l.kind = 'session' and l.resource_id = p_session
  on conflict (tenant_id, kind, resource_id) do update
    set due_at = instant, wake_at = case when leases.holder is null then instant else leases.wake_at end;
  insert into holdfast.resource_changes (tenant_id, kind, resource_id, root_id, resource_version, operation, body)
  values
    (session.tenant_id, 'session', p_session, p_session, session.resource_version, 'session.head_moved',
      jsonb_build_object('session_id', p_session, 'head_revision', upcoming, 'sha256', candidate.sha256, 'bytes', candidate.bytes)),
    (session.tenant_id, 'activation', p_activation, p_session, activation.resource_version, 'activation.committed',
      jsonb_build_object('session_id', p_session, 'activation_id', activation.activation_id, 'revision', upcoming));
  foreach target in array case when cardinality(p_destinations) = 0 then array[inbox] else p_destinations end loop
    perform holdfast.publish('activation', p_activation, p_session, activation.ordinal, target,
      jsonb_build_object('session_id', p_session, 'activation_id', activation.activation_id, 'ordinal', activation.ordinal,
        'revision', upcoming, 'reply', activation.reply));
  end loop;
  return upcoming;
end
$$;
grant execute on function holdfast.commit_checkpoint(uuid, uuid, uuid, bigint, bigint, text[]) to holdfast_controller;
