import { randomUUID } from "node:crypto";

type Ask = (text: string, values?: readonly unknown[]) => Promise<unknown>;

/** As a worker that died in its first attempt left it, with nobody who knows: suspended, one outcome unknown. */
export async function loseWork(ask: Ask, work: string): Promise<void> {
  await ask(
    `with lost as (
       update holdfast.leases_work set work_state = 'suspended', attempt = 1, epoch = nextval('holdfast.lease_epochs'),
         due_at = '9999-12-31T00:00:00Z', wake_at = '9999-12-31T00:00:00Z'
       where resource_id = $1 returning tenant_id, epoch
     ), noted as (
       insert into holdfast.work_suspensions (tenant_id, work_id, suspended_at, reason)
       select tenant_id, $1, clock_timestamp(), 'outcome_unknown' from lost
     )
     insert into holdfast.work_attempts (tenant_id, work_id, attempt, holder, epoch, outcome, ended_at, permit_admitted_at)
     select tenant_id, $1, 1, $2, epoch, 'unknown', clock_timestamp(), clock_timestamp() - interval '1 second' from lost`,
    [work, randomUUID()],
  );
}
