-- The deployment epoch: who has an older one commits nothing any more. The rules stand in keep_floors() of 0001.

-- name: nameRotation :one
select set_config('holdfast.reason', :reason, true) as "reason!", set_config('holdfast.cut_off', :cut_off, true) as "cut_off!";

-- Only from the epoch that the operator saw.
-- name: rotateDeployment :exec
update holdfast.store set deployment_epoch = :expected + 1 where deployment_epoch = :expected;

-- name: readDeployment :one
select deployment_epoch from holdfast.store;
