-- What of Work is removed when its time has come. The role's policies show nothing that is younger than a day.

-- Finished items with everything that is said of them. `kept`: those of which a late result is still there; the next
-- look skips as many.
-- name: removeFinishedWork :one
select removed as "removed!", kept as "kept!" from holdfast.remove_finished_work(:keep_us, :skip, :batch);
