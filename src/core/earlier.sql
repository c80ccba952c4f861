-- Transactions that are open now in this database, prepared ones of any. A number is used only once while a server runs.
-- name: listTransactions :many
select distinct l.virtualtransaction as "transaction!"
from pg_locks l left join pg_stat_activity a on a.pid = l.pid
where l.locktype in ('virtualxid', 'transactionid') and l.granted and l.pid is distinct from pg_backend_pid()
  and (a.pid is null or a.datname = current_database());
