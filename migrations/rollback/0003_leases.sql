-- Rolls back 0003 in what it does, not in what it stored: from here on nobody takes a lease.
--
-- Without an epoch there is no claim. Leases that are held are renewed and given back as ever, so what runs ends well;
-- what waits, waits. No epoch is used twice, since the sequence stays where it is.
--
-- Run it as holdfast_owner, with this release still deployed. No row is removed or changed; history and floors stay.
-- Running it again changes nothing.
-- Undo: grant usage on sequence holdfast.lease_epochs to holdfast_dispatcher, holdfast_controller, holdfast_worker, holdfast_retention;

begin;
set local role holdfast_owner;
revoke usage on sequence holdfast.lease_epochs from
  holdfast_dispatcher, holdfast_controller, holdfast_worker, holdfast_retention;
commit;
