-- Who calls.

-- name: authenticate :maybe
select tenant_id as "tenant_id!", principal_id as "principal_id!", principal_name as "principal_name!",
  token_id as "token_id!", scopes as "scopes!", expires_at as "expires_at!"
from holdfast.authenticate(:hash, :deployment_epoch);

-- Somebody whom the issuer vouches for.
-- name: admitSubject :maybe
select tenant_id as "tenant_id!", principal_id as "principal_id!", principal_name as "principal_name!"
from holdfast.admit_subject(:tenant, :name, :new_principal, :deployment_epoch);
