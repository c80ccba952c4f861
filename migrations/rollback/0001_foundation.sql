-- Rolls back 0001 in what it does, not in what it stored: from here on nothing new is admitted of any kind, of any tenant.
--
-- Everything else of a store rests on this migration, so what is left is to let it come to rest: jobs, sessions and work
-- that were admitted go on to their end under this release, and can be read for good.
--
-- Run it as holdfast_owner, with this release still deployed. No row is removed or changed; history and floors stay.
-- Running it again changes nothing. A kind that is drained already keeps its reason, and
-- `holdfast resume` then ends both.
-- Undo: delete from holdfast.drains where reason = 'rolled back: 0001';

begin;
set local role holdfast_owner;
insert into holdfast.drains (kind, reason)
select kind, 'rolled back: 0001' from unnest('{jobs,sessions,activations,work}'::text[]) as kind
on conflict (kind) do nothing;
commit;
