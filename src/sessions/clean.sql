-- What an activation leaves outside, and its removal under the activation's own lease.

-- name: readEnd :maybe
select a.session_id, a.activation_id, a.state, a.cleaned_at is not null as "cleaned!"
from holdfast.activations a
where a.tenant_id = holdfast.current_tenant() and a.activation_uid = :uid;

-- Candidates that became no revision.
-- name: listLostCandidates :many
select c.sandbox_id, c.sha256, c.blob_key from holdfast.bundle_candidates c
where c.tenant_id = holdfast.current_tenant() and c.activation_uid = :uid and c.removed_at is null
  and not exists (
    select from holdfast.bundle_revisions r where r.tenant_id = c.tenant_id and r.blob_key = c.blob_key);

-- name: markCandidateRemoved :exec
update holdfast.bundle_candidates set removed_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and activation_uid = :uid and sandbox_id = :sandbox and sha256 = :sha256
  and removed_at is null;

-- name: markCleaned :exec
update holdfast.activations set cleaned_at = holdfast.ledger_now()
where tenant_id = holdfast.current_tenant() and activation_uid = :uid and finished_at is not null and cleaned_at is null;
