-- Transactions that are open now, those of other databases too. Their numbers are used only once while a server runs.
-- name: listTransactions :many
select distinct l.virtualtransaction as "transaction!" from pg_locks l
where l.locktype = 'virtualxid' and l.pid <> pg_backend_pid();
