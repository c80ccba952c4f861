import { answerCommand, insertCommand, readCommandByKey } from "./command.sql.ts";
import { type Answer, type CommandRequest, decideReplay } from "./command.ts";
import { HoldfastError } from "./errors.ts";
import { uuidv7 } from "./ids.ts";
import type { Transaction } from "./postgres/transition.ts";

/** Retention may remove an expired key between the two looks; more than once in a row is something else. */
const looksMax = 3;

/**
 * The ledger around every mutation: in one transaction the command, what `mutate` writes, and the answer (G2).
 * The first use of a key runs; a concurrent second one waits on the unique constraint for its commit. Every
 * later one gets the stored answer, before anything is looked at that may have changed since (G3). What
 * `mutate` throws rolls the command back too, so only committed outcomes are ever stored.
 */
export async function runCommand(
  tx: Transaction,
  request: CommandRequest,
  mutate: () => Promise<Answer>,
): Promise<Answer & { readonly replayed: boolean }> {
  const command = uuidv7();
  for (let look = 1; look <= looksMax; look += 1) {
    const first = await tx.run(insertCommand, {
      command,
      principal: request.principal,
      idempotency_key: request.key,
      operation: request.operation,
      target: request.target,
      fingerprint: request.fingerprint,
      request_id: request.requestId,
    });
    if (first !== undefined) {
      const answer = await mutate();
      await tx.run(answerCommand, {
        command,
        status: answer.status,
        body: answer.body,
        etag: answer.etag,
      });
      return { ...answer, replayed: false };
    }
    const stored =
      request.key === null
        ? undefined
        : await tx.run(readCommandByKey, { principal: request.principal, idempotency_key: request.key });
    if (stored !== undefined) return { ...decideReplay(request, stored), replayed: true };
  }
  throw new HoldfastError("unavailable", "the idempotency key is being removed", { retryAfterSeconds: 1 });
}
