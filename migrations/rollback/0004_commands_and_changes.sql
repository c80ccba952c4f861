-- Rolls back 0004 in what it does, not in what it stored: from here on no command is accepted.
--
-- Every request that would change something is refused, those that read go on, and a request that was carried out is
-- still answered from its record. What was accepted goes on, with its changes and its deliveries.
--
-- Run it as holdfast_owner, with this release still deployed. No row is removed or changed; history and floors stay.
-- Running it again changes nothing.
-- Undo: grant insert on holdfast.commands to holdfast_gateway, holdfast_operator;

begin;
set local role holdfast_owner;
revoke insert on holdfast.commands from holdfast_gateway, holdfast_operator;
commit;
