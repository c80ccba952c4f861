-- What every transition opens with.

-- Names the tenant and the trace, refuses another deployment epoch (HF004), gives the database's time.
-- name: beginTransition :one
-- null: tenant, traceparent
select holdfast.begin_transition(:tenant, :deployment_epoch, :traceparent) as "now!";

-- Locks the lease until commit and refuses anybody but its present holder (HF001).
-- name: assertFence :exec
select holdfast.assert_fence(:kind, :resource, :holder, :epoch);
