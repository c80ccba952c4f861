import { formatInstant, type Instant, instant } from "../../src/core/time.ts";
import type { WorkStand } from "./work.ts";

/** A clock that stands still until it is moved. It exists here alone: no migration has it (W8). */
export interface Clock {
  readonly now: () => Instant;
  readonly set: (at: Instant) => Promise<void>;
  readonly advance: (by: bigint) => Promise<void>;
}

/** Puts the database's clocks under the test's control, for this database alone. */
export async function controlClock(
  ask: WorkStand["ask"],
  start = instant(1_800_000_000_000_000n),
): Promise<Clock> {
  let at = start;
  const text = () => formatInstant(at);
  await ask(`
    create schema controlled;
    create table controlled.clock (at timestamptz not null);
    insert into controlled.clock values ('${text()}');
    grant usage on schema controlled to public;
    grant select on controlled.clock to public;
    create or replace function holdfast.work_execution_now() returns timestamptz
      language sql volatile security invoker parallel safe as 'select at from controlled.clock';
    create or replace function holdfast.ledger_now() returns timestamptz
      language sql volatile security invoker parallel safe as 'select at from controlled.clock'`);
  const set = async (to: Instant) => {
    at = to;
    await ask(`update controlled.clock set at = '${text()}'`);
  };
  return { now: () => at, set, advance: (by) => set(instant(at + by)) };
}
