-- Rolls back 0005 in what it does, not in what it stored: from here on no job is submitted, by this release or an older one.
--
-- Jobs that were submitted go on to their end, can be cancelled, and stay readable with their artifacts.
--
-- Run it as holdfast_owner, with this release still deployed. No row is removed or changed; history and floors stay.
-- Running it again changes nothing. A kind that is drained already keeps its reason, and
-- `holdfast resume` then ends both.
-- Undo: delete from holdfast.drains where reason = 'rolled back: 0005';
-- Undo: grant insert on holdfast.jobs to holdfast_gateway;

begin;
set local role holdfast_owner;
insert into holdfast.drains (kind, reason) values ('jobs', 'rolled back: 0005') on conflict (kind) do nothing;
revoke insert on holdfast.jobs from holdfast_gateway;
commit;
