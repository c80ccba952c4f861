-- Rolls back 0011 in what it does, not in what it stored: from here on no Work is registered or accepted at all.
--
-- Run it as holdfast_owner, with this release still deployed, and let its workers drain what was accepted. No row is
-- removed or changed but the retirement of the versions; the history of migrations and the floors stay. Running it again
-- changes nothing. To undo: drop the constraint work_versions_no_work and register new versions.

begin;
set local role holdfast_owner;
alter table holdfast.work_versions drop constraint if exists work_versions_no_work;
update holdfast.work_versions set retired_at = holdfast.work_execution_now() where retired_at is null;
alter table holdfast.work_versions add constraint work_versions_no_work check (retired_at is not null) not valid;
commit;
