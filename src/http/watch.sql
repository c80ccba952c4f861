-- Where the change log stands.

-- Read in the snapshot of a list, it is that list's cursor: everything up to the position is in the list.
-- name: readHead :one
select s.incarnation_id, c.position, c.floor from holdfast.store s, holdfast.change_counter c;
