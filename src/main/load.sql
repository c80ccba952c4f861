-- What waits and what runs, over all tenants: counts alone, no name but a pool's, no payload. For metrics.

-- Waiting jobs are bounded by the queue's limit, and slots by the operator who made them.
-- name: readPoolLoad :many
select s.pool as "pool!", count(*) as "slots!", count(s.attempt_id) as "used!", (
  select count(*) from holdfast.leases l where l.kind = 'admission' and l.queue = s.pool) as "waiting!"
from holdfast.slots s
group by s.pool
order by s.pool
limit :limit;

-- An attempt keeps its lease until it is cleaned, and its slot until it has finished. One that is due has nobody.
-- name: readAttemptLoad :one
select count(*) as "open!", count(*) filter (where l.wake_at <= holdfast.ledger_now()) as "unattended!",
  (select count(*) from holdfast.slots s where s.attempt_id is not null) as "active!",
  (select count(*) from holdfast.sandbox_attempts a where a.stop_unproven_at is not null) as "unproven!"
from holdfast.leases l where l.kind = 'execution';
