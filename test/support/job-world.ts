import { Pool } from "pg";
import { canonicalDigest } from "../../src/core/canonical.ts";
import { brandId, type IncarnationId, type JobId, uuidv7 } from "../../src/core/ids.ts";
import { type Microseconds, seconds } from "../../src/core/time.ts";
import { type Plan, planDigest, planOf } from "../../src/executions/plan.ts";
import type { JobSpec } from "../../src/wire/job.ts";
import { type Attempts, openAttempts } from "./attempts.ts";
import type { Scope } from "./database.ts";
import type { AttemptModel, Controller, JobModel, LeaseModel } from "./job-model.ts";
import { tenantA } from "./kernel.ts";

/** A job as the store has it: what the model tells of it, and the ids and epochs by which one acts on it. */
export interface StoredJob {
  readonly job: JobId;
  readonly model: JobModel;
  readonly plan: Plan;
  readonly admissionEpoch: bigint;
  readonly attempts: readonly {
    readonly id: string;
    readonly epoch: bigint;
    readonly sandboxes: readonly { readonly id: string; readonly name: string; readonly step: string }[];
  }[];
}

/** One store with a clock that can be moved, and jobs in it that can be copied and read as models. */
export interface JobWorld {
  readonly bench: Attempts;
  readonly holders: Readonly<Record<Controller, IncarnationId>>;
  readonly leaseUs: Microseconds;
  /** Waits in a pool of one slot and for a runtime, both its own. */
  submit(): Promise<StoredJob>;
  read(job: JobId): Promise<StoredJob>;
  /** Another job in the same state, with a pool and a runtime of its own. */
  copy(template: StoredJob): Promise<StoredJob>;
  /** Moves the one clock, as seen from when it commits. */
  setClock(aheadSeconds: number): Promise<void>;
  /** Leaves nothing of all other jobs, so that the store stays as small as a test's. */
  forgetOthers(kept: readonly StoredJob[]): Promise<void>;
  readonly blocked: (pid: number) => Promise<boolean>;
  readonly superuser: Pool;
}

/** The deadline of each attempt, and how far `deadline` moves the clock. Leases last longer than both. */
export const deadlineSeconds = 3_600;
export const passedSeconds = 2 * deadlineSeconds;
const leaseSeconds = 100 * deadlineSeconds;

const spec = (pool: string): JobSpec => ({
  pool,
  attempts: 2,
  deadline: `${deadlineSeconds / 3_600}h`,
  sources: { engine: { repository: "https://example.test/engine.git", ref: "main" } },
  phases: [
    { name: "fetch", kind: "source", command: ["true"] },
    { name: "publish", kind: "publish", command: ["true"] },
  ],
});

export async function openJobWorld(
  scope: Scope & { readonly after: (hook: () => Promise<void>) => void },
): Promise<JobWorld> {
  const bench = await openAttempts(scope);
  const { kernel } = bench;
  const superuser = new Pool({ ...kernel.database.superuser, max: 4 });
  const looker = new Pool({ ...kernel.database.superuser, max: 4 });
  for (const pool of [superuser, looker]) {
    pool.on("error", () => undefined);
    kernel.after(() => pool.end());
  }
  await superuser.query(fixture);
  const holders = {
    one: brandId<IncarnationId>(uuidv7()),
    two: brandId<IncarnationId>(uuidv7()),
  } as const;
  let made = 0;

  const world: JobWorld = {
    bench,
    holders,
    superuser,
    leaseUs: seconds(leaseSeconds),
    async submit() {
      const pool = nextName();
      await addSlot(pool);
      return world.read(await bench.submit({ ...spec(pool), kinds: [] }));
    },
    read: (job) => ask("select test.facts($1, $2) as facts", [tenantA, job]),
    async copy(template) {
      const name = nextName();
      const newSpec = spec(name);
      const plan = planOf(newSpec, name);
      const values = [tenantA, template.job, name, newSpec, canonicalDigest(newSpec), plan, planDigest(plan)];
      return ask("select test.copy_job($1, $2, $3, $4, $5, $6, $7) as facts", values);
    },
    async setClock(aheadSeconds) {
      await superuser.query("select test.set_clock($1)", [aheadSeconds]);
    },
    async forgetOthers(kept) {
      await superuser.query("select test.forget_others($1)", [kept.map(({ job }) => job)]);
      await superuser.query("vacuum analyze");
    },
    async blocked(pid) {
      const text = "select cardinality(pg_blocking_pids($1)) > 0 as blocked";
      const { rows } = await looker.query<{ blocked: boolean }>({ name: text, text, values: [pid] });
      return rows[0]?.blocked ?? false;
    },
  };

  async function ask(text: string, values: readonly unknown[]): Promise<StoredJob> {
    const { rows } = await superuser.query<{ facts: Facts | null }>({
      name: text,
      text,
      values: [...values],
    });
    const facts = rows[0]?.facts ?? null;
    if (facts === null) throw new Error("there is no such job");
    return storedJob(brandId<JobId>(facts.job), facts, holders);
  }

  function nextName(): string {
    made += 1;
    return `own-${String(made)}`;
  }

  async function addSlot(pool: string): Promise<void> {
    await superuser.query("insert into holdfast.slots (pool, slot) values ($1, 1)", [pool]);
  }

  return world;
}

interface Facts {
  readonly job: string;
  readonly state: JobModel["state"];
  readonly priority: number;
  readonly cancel_requested: boolean;
  readonly pool: string;
  readonly runtime: string;
  readonly artifact: boolean;
  readonly admission: LeaseFacts | null;
  readonly attempts: readonly (Omit<AttemptModel, "lease" | "sandboxes"> & {
    readonly id: string;
    readonly lease: LeaseFacts | null;
    readonly sandboxes: readonly (AttemptModel["sandboxes"][number] & {
      readonly id: string;
      readonly name: string;
      readonly step: string;
    })[];
  })[];
}

interface LeaseFacts {
  readonly holder: string | null;
  readonly expired: boolean;
  readonly epoch: number;
}

function storedJob(job: JobId, facts: Facts, holders: JobWorld["holders"]): StoredJob {
  const lease = (row: LeaseFacts | null): LeaseModel | null => {
    if (row === null) return null;
    const holder = row.holder === holders.one ? "one" : row.holder === holders.two ? "two" : null;
    if (holder === null && row.holder !== null) throw new Error("a stranger holds a lease");
    return { holder, expired: row.expired };
  };
  const { job: _job, pool, runtime, cancel_requested, attempts, ...rest } = facts;
  return {
    job,
    plan: planOf(spec(pool), runtime),
    admissionEpoch: BigInt(facts.admission?.epoch ?? 0),
    model: {
      ...rest,
      cancelRequested: cancel_requested,
      admission: lease(facts.admission),
      attempts: attempts.map(({ id: _id, lease: held, sandboxes, ...attempt }) => ({
        ...attempt,
        lease: lease(held),
        sandboxes: sandboxes.map(({ id: _sandbox, name: _name, step: _step, ...sandbox }) => sandbox),
      })),
    },
    attempts: attempts.map(({ id, lease: held, sandboxes }) => ({
      id,
      epoch: BigInt(held?.epoch ?? 0),
      sandboxes: sandboxes.map(({ id: sandbox, name, step }) => ({ id: sandbox, name, step })),
    })),
  };
}

/**
 * The controlled clock, one question that reads a job as the model has it, and a copy of a job with all that
 * belongs to it under other ids. Only in a test's own database.
 */
const fixture = `
create schema test;
create table test.clock (ahead interval not null);
insert into test.clock values ('0');
grant usage on schema test to public;
grant select on test.clock to public;
create function test.set_clock(p_seconds double precision) returns void language sql security definer as $$
  update test.clock set ahead = make_interval(secs => p_seconds)
$$;
create or replace function holdfast.ledger_now() returns timestamptz
  language sql volatile security invoker parallel safe
  return pg_catalog.clock_timestamp() + (select c.ahead from test.clock c);

-- In plpgsql, which keeps its plans.
create function test.lease(p_tenant text, p_kind text, p_resource uuid) returns jsonb language plpgsql as $$ begin return (
  select jsonb_build_object('holder', l.holder, 'epoch', l.epoch,
    'expired', l.holder is not null and l.wake_at <= holdfast.ledger_now())
  from holdfast.leases l where l.tenant_id = p_tenant and l.kind = p_kind and l.resource_id = p_resource
); end $$;

create function test.facts(p_tenant text, p_job uuid) returns jsonb language plpgsql as $$ begin return (
  select jsonb_build_object('job', j.job_id,
    'state', j.state, 'priority', j.priority, 'cancel_requested', j.cancel_requested_at is not null,
    'pool', c.spec ->> 'pool',
    'runtime', coalesce((select a.plan ->> 'runtime' from holdfast.execution_attempts a
      where a.tenant_id = p_tenant and a.job_id = p_job limit 1), c.spec ->> 'pool'),
    'artifact', exists (select from holdfast.artifacts r where r.tenant_id = p_tenant and r.job_id = p_job),
    'admission', test.lease(p_tenant, 'admission', p_job),
    'attempts', coalesce((select jsonb_agg(jsonb_build_object(
      'id', a.attempt_id, 'state', a.state, 'outcome', a.outcome,
      'overdue', a.state = 'active' and holdfast.ledger_now() >= a.deadline,
      'lease', test.lease(p_tenant, 'execution', a.attempt_id),
      'slot', exists (select from holdfast.slots s where s.tenant_id = p_tenant and s.attempt_id = a.attempt_id),
      'phases', (select jsonb_agg(p.state order by p.number) from holdfast.execution_phases p
        where p.tenant_id = p_tenant and p.attempt_id = a.attempt_id),
      'pins', exists (select from holdfast.source_pins i where i.tenant_id = p_tenant and i.attempt_id = a.attempt_id),
      'declared', a.artifact_object is not null,
      'sandboxes', coalesce((select jsonb_agg(jsonb_build_object(
        'id', s.sandbox_id, 'name', s.name, 'step', s.step,
        'phase', (select p.number - 1 from holdfast.execution_phases p
          where p.tenant_id = p_tenant and p.attempt_id = a.attempt_id and p.name = s.step),
        'state', s.state, 'uid', s.uid is not null, 'released', s.released_at is not null,
        'good', coalesce(s.outcome = 'exited' and s.exit_code = 0, false), 'chunks', s.log_seq,
        'settled', s.log_complete_at is not null or s.log_lost_reason is not null
      ) order by s.planned_at, s.sandbox_id) from holdfast.sandbox_attempts s
        where s.tenant_id = p_tenant and s.owner_kind = 'execution' and s.owner_id = a.attempt_id), '[]')
    ) order by a.ordinal) from holdfast.execution_attempts a where a.tenant_id = p_tenant and a.job_id = p_job), '[]'))
  from holdfast.jobs j join holdfast.job_specs c using (tenant_id, spec_digest)
  where j.tenant_id = p_tenant and j.job_id = p_job
); end $$;

-- Its time is over.
create function test.end_time(p_attempts uuid[]) returns void language plpgsql as $$
begin
  perform set_config('session_replication_role', 'replica', true);
  update holdfast.execution_attempts set deadline = holdfast.ledger_now() where attempt_id = any (p_attempts);
  update holdfast.sandbox_attempts set deadline = holdfast.ledger_now() where owner_id = any (p_attempts);
  perform set_config('session_replication_role', 'origin', true);
end
$$;

-- Everything of all other jobs, but the change log, which has no gaps.
create function test.forget_others(p_keep uuid[]) returns void language plpgsql as $$
declare
  attempts uuid[] := (select array_agg(a.attempt_id) from holdfast.execution_attempts a where a.job_id = any (p_keep));
begin
  perform set_config('session_replication_role', 'replica', true);
  delete from holdfast.jobs where job_id <> all (p_keep);
  delete from holdfast.artifacts where job_id <> all (p_keep);
  delete from holdfast.job_specs c where not exists (select from holdfast.jobs j where j.spec_digest = c.spec_digest);
  delete from holdfast.execution_attempts where job_id <> all (p_keep);
  delete from holdfast.execution_phases where attempt_id <> all (attempts);
  delete from holdfast.source_pins where attempt_id <> all (attempts);
  delete from holdfast.attempt_objects where attempt_id <> all (attempts);
  delete from holdfast.sandbox_attempts where owner_id <> all (attempts);
  delete from holdfast.log_chunks c where not exists (
    select from holdfast.sandbox_attempts s where s.sandbox_id = c.sandbox_id);
  delete from holdfast.slots s where not exists (
    select from holdfast.job_specs c where c.spec ->> 'pool' = s.pool) and s.pool <> 'default';
  delete from holdfast.leases where resource_id <> all (attempts || p_keep);
  perform set_config('session_replication_role', 'origin', true);
end
$$;

create function test.id(p_id uuid, p_name text) returns uuid language sql immutable
  return md5(p_id::text || p_name)::uuid;

create function test.copy_job(p_tenant text, p_job uuid, p_name text, p_spec jsonb, p_spec_digest text, p_plan jsonb,
  p_plan_digest text) returns jsonb language plpgsql as $$
declare
  new_job uuid := test.id(p_job, p_name);
  attempts uuid[] := (select array_agg(a.attempt_id) from holdfast.execution_attempts a
    where a.tenant_id = p_tenant and a.job_id = p_job);
  -- The last of each resource.
  changes bigint[] := (select array_agg(last.change_id) from unnest(p_job || attempts) as resource(id)
    cross join lateral (select c.change_id from holdfast.resource_changes c
      where c.tenant_id = p_tenant and c.kind = case resource.id when p_job then 'job' else 'attempt' end
        and c.resource_id = resource.id order by c.resource_version desc limit 1) last);
begin
  perform set_config('session_replication_role', 'replica', true);
  insert into holdfast.job_specs (tenant_id, spec_digest, spec) values (p_tenant, p_spec_digest, p_spec);
  insert into holdfast.jobs select (jsonb_populate_record(j, jsonb_build_object('job_id', new_job, 'spec_digest', p_spec_digest))).*
    from holdfast.jobs j where j.tenant_id = p_tenant and j.job_id = p_job;
  insert into holdfast.slots (pool, slot, tenant_id, attempt_id, taken_at)
    select p_name, 1, s.tenant_id, test.id(s.attempt_id, p_name), s.taken_at
    from (select) one left join holdfast.slots s on s.tenant_id = p_tenant and s.attempt_id = any (attempts);
  insert into holdfast.leases
    select (jsonb_populate_record(l, jsonb_build_object('resource_id', test.id(l.resource_id, p_name),
      'queue', case l.kind when 'retention' then l.queue else p_name end,
      'epoch', case when l.epoch = 0 then 0 else nextval('holdfast.lease_epochs') end))).*
    from holdfast.leases l where l.tenant_id = p_tenant and l.resource_id = any (attempts || p_job);
  insert into holdfast.resource_changes
    select (jsonb_populate_record(r, jsonb_build_object('change_id', nextval('holdfast.change_ids'), 'position', null,
      'root_id', new_job, 'resource_id', test.id(r.resource_id, p_name)))).*
    from holdfast.resource_changes r where r.tenant_id = p_tenant and r.change_id = any (changes);
  if attempts is not null then
    perform test.copy_attempts(p_tenant, attempts, new_job, p_name, p_plan, p_plan_digest);
  end if;
  insert into holdfast.artifacts
    select (jsonb_populate_record(r, jsonb_build_object('job_id', new_job, 'blob_key', md5(r.blob_key || p_name)))).*
    from holdfast.artifacts r where r.tenant_id = p_tenant and r.job_id = p_job;
  perform set_config('session_replication_role', 'origin', true);
  return test.facts(p_tenant, new_job);
end
$$;

create function test.copy_attempts(p_tenant text, p_attempts uuid[], p_new_job uuid, p_name text, p_plan jsonb,
  p_plan_digest text) returns void language plpgsql as $$
begin
  insert into holdfast.execution_attempts
    select (jsonb_populate_record(a, jsonb_build_object('job_id', p_new_job, 'attempt_id', test.id(a.attempt_id, p_name),
      'pool', p_name, 'plan', p_plan, 'plan_digest', p_plan_digest))).*
    from holdfast.execution_attempts a where a.tenant_id = p_tenant and a.attempt_id = any (p_attempts);
  insert into holdfast.execution_phases
    select (jsonb_populate_record(p, jsonb_build_object('attempt_id', test.id(p.attempt_id, p_name)))).*
    from holdfast.execution_phases p where p.tenant_id = p_tenant and p.attempt_id = any (p_attempts);
  insert into holdfast.sandbox_attempts
    select (jsonb_populate_record(s, jsonb_build_object('owner_id', test.id(s.owner_id, p_name),
      'sandbox_id', test.id(s.sandbox_id, p_name), 'runtime', p_name, 'name', 'hf-' || md5(s.name || p_name),
      'uid', 'uid-of-hf-' || md5(s.name || p_name) || substr(s.uid, 1, 0)))).*
    from holdfast.sandbox_attempts s
    where s.tenant_id = p_tenant and s.owner_kind = 'execution' and s.owner_id = any (p_attempts);
  if not found then return; end if;
  insert into holdfast.log_chunks
    select (jsonb_populate_record(c, jsonb_build_object('sandbox_id', test.id(c.sandbox_id, p_name)))).*
    from holdfast.sandbox_attempts s join holdfast.log_chunks c using (tenant_id, sandbox_id)
    where s.tenant_id = p_tenant and s.owner_kind = 'execution' and s.owner_id = any (p_attempts);
  insert into holdfast.source_pins
    select (jsonb_populate_record(i, jsonb_build_object('attempt_id', test.id(i.attempt_id, p_name),
      'sandbox_id', test.id(i.sandbox_id, p_name)))).*
    from holdfast.source_pins i where i.tenant_id = p_tenant and i.attempt_id = any (p_attempts);
  insert into holdfast.attempt_objects
    select (jsonb_populate_record(o, jsonb_build_object('attempt_id', test.id(o.attempt_id, p_name),
      'sandbox_id', test.id(o.sandbox_id, p_name), 'blob_key', md5(o.blob_key || p_name)))).*
    from holdfast.attempt_objects o where o.tenant_id = p_tenant and o.attempt_id = any (p_attempts);
end
$$;
`;
