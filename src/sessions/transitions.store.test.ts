import assert from "node:assert/strict";
import { after, test } from "node:test";
import { acceptedEdges, edgesOf } from "../../test/support/edges.ts";
import { openTurns } from "../../test/support/turns.ts";
import { activationTransitions } from "./activation.ts";

const turns = await openTurns({ after });

test("activations: the database accepts exactly the edges of the table", async () => {
  const session = await turns.session();
  const activation = await turns.admit(session);
  const lease = await turns.claim(session);
  await turns.driveTo(lease, "commit");
  const uid = await turns.uidOf(session, activation);
  // A commit needs its checkpoint, which the machine alone does not ask for.
  await turns.kernel.ask(
    `insert into holdfast.bundle_revisions (tenant_id, session_id, revision)
     select tenant_id, session_id, 1 from holdfast.cloud_sessions where session_id = $1`,
    [session],
  );
  await turns.kernel.ask(
    `insert into holdfast.checkpoints (tenant_id, session_id, revision, activation_uid, sandbox_id, holder, epoch)
     select tenant_id, session_id, 1, activation_uid, proposed_by, gen_random_uuid(), 1
     from holdfast.activations where activation_uid = $1`,
    [uid],
  );
  const edges = await acceptedEdges(turns.kernel, {
    table: "holdfast.activations",
    where: `activation_uid = '${uid}'`,
    states: Object.keys(activationTransitions),
    beside: (state) => {
      const ended = ["committed", "failed", "cancelled"].includes(state);
      const failed = state === "failed" ? "'test'" : "null";
      return [
        `finished_at = ${ended ? "'2026-01-01T00:00:00Z'" : "null"}`,
        `revision = ${state === "committed" ? "1" : "null"}`,
        `failure_code = ${failed}`,
        `failure_message = ${failed}`,
        `cancel_requested_at = ${state === "cancelled" ? "'2026-01-01T00:00:00Z'" : "null"}`,
        `cancel_reason = ${state === "cancelled" ? "'asked'" : "null"}`,
        `required_action = ${state === "waiting" ? `'{"type": "retry_activation"}'` : "null"}`,
      ].join(", ");
    },
  });
  assert.deepEqual(edges, edgesOf(activationTransitions));
});
