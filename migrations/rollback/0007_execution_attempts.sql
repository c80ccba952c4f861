-- Rolls back 0007 in what it does, not in what it stored: from here on no job is enrolled as an execution.
--
-- Jobs that were enrolled go on, with their attempts, deadlines and slots. Historical jobs, which nobody enrolled, are
-- the direct claimant's as before. No job loses its enrolment: then two kinds of claimants would run it.
--
-- Run it as holdfast_owner, with this release still deployed. No row is removed or changed; history and floors stay.
-- Running it again changes nothing. A kind that is drained already keeps its reason, and
-- `holdfast resume` then ends both.
-- Undo: delete from holdfast.drains where reason = 'rolled back: 0007';

begin;
set local role holdfast_owner;
insert into holdfast.drains (kind, reason) values ('jobs', 'rolled back: 0007') on conflict (kind) do nothing;
commit;
