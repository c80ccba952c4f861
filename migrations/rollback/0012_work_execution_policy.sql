-- Rolls back 0012 in what it does, not in what it stored: from here on no opted-in Work is registered or accepted.
--
-- Run it as holdfast_owner, with this release still deployed: what was accepted drains under it, with its deadlines, its
-- plans and its facts. No row is removed or changed but the retirement of the versions, the history of migrations stays,
-- and the floors stay at 12: an older process would run past a deadline. Legacy versions are not touched. Running it
-- again changes nothing. To undo: drop the constraint work_versions_no_policy and register new versions.

begin;
set local role holdfast_owner;
alter table holdfast.work_versions drop constraint if exists work_versions_no_policy;
update holdfast.work_versions set retired_at = holdfast.work_execution_now()
where execution_policy_schema is not null and retired_at is null;
alter table holdfast.work_versions
  add constraint work_versions_no_policy check (execution_policy_schema is null or retired_at is not null) not valid;
commit;
