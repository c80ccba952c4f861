-- Drains: kinds of which nothing new is admitted. The model stands in migrations/0001_foundation.sql.

-- Every admission asks this first: the tenant is enabled (HF005), and its kind is not drained (HF017).
-- name: assertAdmits :exec
select holdfast.assert_admits(:kind);

-- Again it keeps the reason and the time of the first.
-- name: startDrain :exec
insert into holdfast.drains (kind, reason) values (:kind, :reason)
on conflict (kind) do nothing;

-- name: nameReason :one
select set_config('holdfast.reason', :reason, true) as "reason!";

-- name: endDrain :exec
delete from holdfast.drains where kind = :kind;

-- name: listDrains :many
select kind, reason, started_at, started_by from holdfast.drains order by kind;

-- What was admitted and has not ended, of all tenants, counted no further than to :count_max. Suspended Work and
-- activations that wait for somebody are nobody's to finish, so they are not in it.
-- name: countLeft :one
select
  (select count(*) from (
    select from holdfast.leases l where l.kind in ('admission', 'execution') limit :count_max) j)::integer as "jobs!",
  (select count(*) from (
    select from holdfast.leases l where l.kind in ('session', 'activation') limit :count_max) s)::integer as "sessions!",
  (select count(*) from (
    select from holdfast.leases l where l.kind = 'work' and l.work_state <> 'suspended' limit :count_max) w)::integer as "work!",
  (select count(*) from (
    select from holdfast.leases l where l.kind = 'work' and l.work_state = 'suspended' limit :count_max) w)::integer as "suspended!";
