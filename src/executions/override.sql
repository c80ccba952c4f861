-- An operator's word that a sandbox of an attempt has stopped, where nothing can prove it.

-- name: findAttemptSandbox :maybe
select a.attempt_id, s.name
from holdfast.execution_attempts a
join holdfast.sandbox_attempts s on s.tenant_id = a.tenant_id and s.owner_kind = 'execution' and s.owner_id = a.attempt_id
where a.tenant_id = holdfast.current_tenant() and a.job_id = :job and a.ordinal = :ordinal and s.sandbox_id = :sandbox;
