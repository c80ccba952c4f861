-- The role recipe. Run once in each cluster by somebody who may create roles, and again at will: it changes
-- nothing that is right already. None of these roles can log in. A deployment makes a login for each process
-- and grants it the roles that this process plays, WITH INHERIT FALSE, SET TRUE; the process then takes one
-- role a connection. So a connection that reads leases of all tenants never reads a tenant's payload.
--
--   holdfast_owner       owns the schema and applies migrations; no process runs as it
--   holdfast_gateway     the public API, one tenant at a time
--   holdfast_controller  drives executions and sandboxes and answers callbacks, one tenant at a time
--   holdfast_worker      runs Work, one tenant at a time
--   holdfast_producer    submits Work and nothing else
--   holdfast_dispatcher  sees leases, change positions, slots and incarnations of all tenants; no payload
--   holdfast_operator    makes tenants, principals and tokens; inspects; audited overrides
--   holdfast_retention   removes what its retention ended

do $roles$
declare
  name text;
begin
  -- Roles belong to the cluster: two databases set up at once must not race.
  perform pg_catalog.pg_advisory_xact_lock(7146290581);
  foreach name in array array[
    'holdfast_owner', 'holdfast_gateway', 'holdfast_controller', 'holdfast_worker',
    'holdfast_producer', 'holdfast_dispatcher', 'holdfast_operator', 'holdfast_retention'
  ] loop
    if not exists (select from pg_catalog.pg_roles where rolname = name) then
      execute pg_catalog.format('create role %I nologin noinherit nosuperuser nocreatedb nocreaterole nobypassrls', name);
    end if;
  end loop;
  execute pg_catalog.format('grant create, connect on database %I to holdfast_owner', pg_catalog.current_database());
end
$roles$;
