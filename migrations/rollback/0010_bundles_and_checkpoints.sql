-- Rolls back 0010 in what it does, not in what it stored: from here on no turn begins that would commit a checkpoint, and no
-- session begins from a revision.
--
-- Turns that were admitted commit theirs. Revisions and their bundles stay, and can be downloaded.
--
-- Run it as holdfast_owner, with this release still deployed. No row is removed or changed; history and floors stay.
-- Running it again changes nothing. A kind that is drained already keeps its reason, and
-- `holdfast resume` then ends both.
-- Undo: delete from holdfast.drains where reason = 'rolled back: 0010';

begin;
set local role holdfast_owner;
insert into holdfast.drains (kind, reason)
select kind, 'rolled back: 0010' from unnest('{sessions,activations}'::text[]) as kind
on conflict (kind) do nothing;
commit;
