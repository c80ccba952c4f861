-- Rolls back 0008 in what it does, not in what it stored: from here on no agent is made and no session begins.
--
-- Sessions that are there go on, take what they are told, and can be read, forked no more, and deleted.
--
-- Run it as holdfast_owner, with this release still deployed. No row is removed or changed; history and floors stay.
-- Running it again changes nothing. A kind that is drained already keeps its reason, and
-- `holdfast resume` then ends both.
-- Undo: delete from holdfast.drains where reason = 'rolled back: 0008';
-- Undo: grant insert on holdfast.agents, holdfast.cloud_sessions to holdfast_gateway;

begin;
set local role holdfast_owner;
insert into holdfast.drains (kind, reason) values ('sessions', 'rolled back: 0008') on conflict (kind) do nothing;
revoke insert on holdfast.agents, holdfast.cloud_sessions from holdfast_gateway;
commit;
