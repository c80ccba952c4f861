import { HoldfastError } from "../core/errors.ts";
import { underLease } from "../core/lease.store.ts";
import type { HeldLease } from "../core/lease.ts";
import { type Database, view } from "../core/postgres/transition.ts";
import { readChunksAfter } from "../sandboxes/log.sql.ts";
import type { Sandbox } from "../sandboxes/sandbox.ts";
import type { AgentOutcome, RequiredAction } from "../wire/agent-protocol.ts";
import type { AgentReading } from "./agent-protocol.ts";
import { outputFault, understand } from "./output.ts";
import * as sql from "./run.sql.ts";

/** At most 256 KiB each, and far less as a rule. */
const chunksAtOnce = 16n;

/**
 * Understand what an agent has said since the last look: its events become changes, which a watcher sees as they
 * come, in the transaction that records how far its output was read, so each is there once, whoever dies where (S6,
 * S12). With `end`, when all of it is stored and read, also what its end means.
 */
export async function readOutput(
  db: Database,
  lease: HeldLease,
  uid: string,
  { sandbox, end }: { readonly sandbox: Pick<Sandbox, "id">; readonly end: boolean },
): Promise<void> {
  const scope = { role: "controller", tenant: lease.tenant, name: "readOutput" } as const;
  const { before, chunks } = await view(db, scope, async (tx) => {
    const row = await tx.run(sql.readReading, { uid });
    if (row === undefined) throw new HoldfastError("not_found", "there is no such activation");
    const after = row.output_read;
    return {
      before: row,
      chunks: await tx.run(readChunksAfter, { sandbox: sandbox.id, after, limit: chunksAtOnce }),
    };
  });
  const { reading, events, read } = understand(readingOf(before), before.output_read, chunks);
  const done = end && chunks.length < Number(chunksAtOnce);
  const fault = done ? outputFault(reading) : null;
  const { outcome } = reading;
  await underLease(db, lease, "recordReading", async (tx) => {
    await tx.run(sql.lockRun, { uid });
    const recorded = await tx.run(sql.recordReading, {
      uid,
      after: before.output_read,
      sandbox: sandbox.id,
      read,
      stage: reading.stage,
      lines: reading.lines,
      bytes: BigInt(reading.bytes),
      rest: reading.rest,
      // A fault in the middle stands too: nothing after it is read, and the next look finds it by itself.
      fault_code: fault?.code ?? reading.fault?.code ?? null,
      fault:
        fault?.message ??
        (reading.fault === null
          ? null
          : `Line ${reading.fault.line}: ${reading.fault.detail}`.slice(0, 1000)),
      done: done || reading.fault !== null,
      proposed_by: outcome === null ? null : sandbox.id,
      candidate: outcome?.candidate ?? null,
      reply: outcome?.reply ?? null,
      required_action: outcome?.required_action ?? null,
    });
    if (recorded === 0 || events.length === 0) return;
    await tx.run(sql.appendEvents, {
      uid,
      names: events.map(({ name }) => name),
      datas: events.map(({ data }) => JSON.stringify(data)),
    });
  });
}

function readingOf(row: sql.ReadReadingRow): AgentReading {
  return {
    stage: row.output_stage as AgentReading["stage"], // held by activations_output_stage
    lines: row.output_lines,
    bytes: Number(row.output_bytes),
    rest: row.output_rest,
    outcome: row.proposed_by === null ? null : outcomeOf(row),
    // A fault ends the reading: nothing is read after it.
    fault: null,
  };
}

/** As the protocol's reader made it, stored as it was. */
function outcomeOf(row: sql.ReadReadingRow): AgentOutcome {
  return {
    type: "outcome",
    candidate: row.candidate_sha256,
    reply: row.reply as AgentOutcome["reply"],
    required_action: row.required_action as RequiredAction | null,
  };
}
