-- What slows a store or keeps it from being attended to. Nothing here is wrong by itself.

-- For the transaction: with the login's own rights, by which it sees the activity of all its connections. It has
-- none on the schema.
-- name: actAsLogin :one
select set_config('role', 'none', true) as "setting!";

-- Whatever holds rows back that nobody needs any more: transactions, prepared ones, replication slots.
-- name: listSnapshots :many
select holder as "holder!", age_us as "age_us?", snapshot_age as "snapshot_age!"
from (
  select 'process ' || a.pid || ' (' || coalesce(nullif(a.application_name, ''), 'no name') || ')' as holder,
    (extract(epoch from holdfast_now.now - a.xact_start) * 1000000)::bigint as age_us,
    coalesce(age(a.backend_xmin), age(a.backend_xid), 0)::integer as snapshot_age
  from pg_stat_activity a, (select clock_timestamp() as now) holdfast_now
  where a.datname = current_database() and a.pid <> pg_backend_pid()
    and (a.backend_xmin is not null or a.backend_xid is not null or a.state like 'idle in transaction%')
  union all
  select 'prepared transaction ' || p.gid, (extract(epoch from clock_timestamp() - p.prepared) * 1000000)::bigint,
    age(p.transaction)::integer
  from pg_prepared_xacts p where p.database = current_database()
  union all
  select 'replication slot ' || r.slot_name, null, age(r.xmin)::integer
  from pg_replication_slots r where r.xmin is not null
) held
order by age_us desc nulls last, snapshot_age desc
limit :limit;

-- name: listTableHealth :many
select s.relname::text as "name!", s.n_live_tup as "live!", s.n_dead_tup as "dead!",
  pg_total_relation_size(s.relid) as "bytes!", greatest(s.last_vacuum, s.last_autovacuum) as "vacuumed_at?"
from pg_stat_user_tables s
where s.schemaname = 'holdfast'
order by s.n_dead_tup desc, s.relname
limit :limit;
