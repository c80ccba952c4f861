-- Rolls back 0006 in what it does, not in what it stored: from here on nothing is admitted that would need a sandbox.
--
-- Jobs and turns that were admitted get the sandboxes that they need, and theirs are stopped, proven and removed by the
-- same rules. When `holdfast drain` shows that nothing is left, no sandbox will be planned any more.
--
-- Run it as holdfast_owner, with this release still deployed. No row is removed or changed; history and floors stay.
-- Running it again changes nothing. A kind that is drained already keeps its reason, and
-- `holdfast resume` then ends both.
-- Undo: delete from holdfast.drains where reason = 'rolled back: 0006';

begin;
set local role holdfast_owner;
insert into holdfast.drains (kind, reason)
select kind, 'rolled back: 0006' from unnest('{jobs,activations}'::text[]) as kind
on conflict (kind) do nothing;
commit;
