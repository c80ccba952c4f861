import { HoldfastError } from "../core/errors.ts";
import type { JobId, PrincipalId, SandboxId } from "../core/ids.ts";
import type { Transaction } from "../core/postgres/transition.ts";
import { overrideStop } from "../sandboxes/sandbox.store.ts";
import { lockAttempt } from "./attempt.sql.ts";
import { recordEvent } from "./attempt.store.ts";
import { findAttemptSandbox } from "./override.sql.ts";

/**
 * Takes an operator's word that a sandbox has stopped. From then on its attempt goes on as if it were proven: the
 * slot comes back, and a retry may start (E10). If the word is wrong, two of them run at once; that is why it is
 * taken only while the world can't be asked, and kept with who gave it. The outside object is still removed by its
 * UID, as soon as the world answers. `conflict` when nothing is in question.
 */
export async function declareStopped(
  tx: Transaction,
  declared: {
    readonly job: JobId;
    readonly ordinal: number;
    readonly sandbox: SandboxId;
    readonly principal: PrincipalId;
    readonly reason: string;
  },
): Promise<void> {
  const { job, ordinal, sandbox, principal, reason } = declared;
  const found = await tx.run(findAttemptSandbox, { job, ordinal, sandbox });
  if (found === undefined) throw new HoldfastError("not_found", "there is no such sandbox");
  const { attempt_id: attempt, name } = found;
  await tx.run(lockAttempt, { attempt });
  const message = `An operator declared it stopped: ${reason}`;
  if (!(await overrideStop(tx, sandbox, { principal, message }))) {
    throw new HoldfastError("conflict", `the stop of ${name} is not in question`);
  }
  await recordEvent(tx, attempt, "sandbox.overridden", { sandbox: name, principal, reason });
}
