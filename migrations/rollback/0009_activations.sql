-- Rolls back 0009 in what it does, not in what it stored: from here on no session is told anything new.
--
-- Turns that were admitted go on to their end, those that wait can be granted what they need or cancelled, and an id that
-- was admitted is still answered with its activation.
--
-- Run it as holdfast_owner, with this release still deployed. No row is removed or changed; history and floors stay.
-- Running it again changes nothing. A kind that is drained already keeps its reason, and
-- `holdfast resume` then ends both.
-- Undo: delete from holdfast.drains where reason = 'rolled back: 0009';

begin;
set local role holdfast_owner;
insert into holdfast.drains (kind, reason) values ('activations', 'rolled back: 0009') on conflict (kind) do nothing;
commit;
