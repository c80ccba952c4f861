import assert from "node:assert/strict";
import { test } from "node:test";
import type { SandboxState } from "./sandbox.ts";
import { orphanReason } from "./sweep.ts";

const object = { uid: "u1" };

test("E21: an object is an orphan exactly when no live row owns its name and UID", () => {
  assert.equal(orphanReason(object, undefined), "unknown");
  const own = (state: SandboxState, uid: string | null) => orphanReason(object, { state, uid });
  assert.equal(own("planned", null), null, "its controller is just making it");
  for (const state of ["held", "released", "stopping", "stopped"] as const) {
    assert.equal(own(state, "u1"), null, state);
    assert.equal(own(state, "u2"), "other_uid", state);
  }
  assert.equal(own("stopped", null), "settled", "abandoned before its UID was recorded");
  assert.equal(own("removed", "u1"), "settled");
});
