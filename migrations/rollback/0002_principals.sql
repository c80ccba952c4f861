-- Rolls back 0002 in what it does, not in what it stored: from here on nobody is let in by a token or an issuer's word.
--
-- The API answers every request that needs a caller with an error. Controllers and workers, which have no callers, go on.
-- Principals and tokens stay as they are, and are good again after the undo.
--
-- Run it as holdfast_owner, with this release still deployed. No row is removed or changed; history and floors stay.
-- Running it again changes nothing.
-- Undo: grant execute on function holdfast.authenticate(bytea, bigint), holdfast.admit_subject(text, text, uuid, bigint) to holdfast_gateway;

begin;
set local role holdfast_owner;
revoke execute on function holdfast.authenticate(bytea, bigint), holdfast.admit_subject(text, text, uuid, bigint)
  from holdfast_gateway;
commit;
