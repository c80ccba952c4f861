import { type Static, Type } from "typebox";
import type { BlobContent, Capability } from "../core/blob.port.ts";
import { HoldfastError } from "../core/errors.ts";
import type { SandboxIdentity } from "../sandboxes/callback.ts";
import { type CallbackRoutes, capabilityView } from "../sandboxes/http.ts";
import { Sha256 } from "../wire/job.ts";
import { bundleQuota } from "./bundle.ts";
import type { AgentInput } from "./report.store.ts";

const closed = { additionalProperties: false } as const;
const CandidatePromise = Type.Object(
  { bytes: Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }), sha256: Sha256 },
  closed,
);
export type CandidatePromise = Static<typeof CandidatePromise>;

/** What the owner of agents' sandboxes answers them. Each is one transition under the sandbox's own fence. */
export interface AgentReports {
  input(from: SandboxIdentity): Promise<AgentInput>;
  promise(from: SandboxIdentity, candidate: BlobContent): Promise<Capability>;
}

/** The callback of agents (docs/reference/agent-protocol.md): what a run begins with, and where its bundle goes. */
export function agentCallbackRoutes(reports: AgentReports): CallbackRoutes {
  return (server, base, from) => {
    server.post(`${base}/agent/input`, { schema: { body: Type.Object({}, closed) } }, async (request) =>
      inputView(await reports.input(from(request))),
    );
    server.post(`${base}/agent/candidates`, { schema: { body: CandidatePromise } }, async (request) => {
      const { bytes, sha256 } = request.body;
      if (bytes > bundleQuota.packedBytesMax) {
        throw new HoldfastError(
          "payload_too_large",
          `a bundle has at most ${bundleQuota.packedBytesMax} bytes`,
        );
      }
      return capabilityView(await reports.promise(from(request), { bytes: BigInt(bytes), sha256 }));
    });
  };
}

function inputView({ bundle, ordinal, revision, ...input }: AgentInput) {
  return {
    ...input,
    ordinal: Number(ordinal),
    revision: Number(revision),
    bundle:
      bundle === null
        ? null
        : { ...capabilityView(bundle), bytes: Number(bundle.bytes), sha256: bundle.sha256 },
  };
}
