import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { directoryBlobs } from "../../src/blobs/directory/directory-blobs.ts";
import type { BlobContent } from "../../src/core/blob.port.ts";
import { HoldfastError } from "../../src/core/errors.ts";
import { brandId, type SandboxId, type TenantId, uuidv7 } from "../../src/core/ids.ts";
import { instant, seconds } from "../../src/core/time.ts";
import { callbackToken } from "../../src/sandboxes/callback.ts";
import { type SandboxReports, startCallbackListener } from "../../src/sandboxes/http.ts";
import { agentCallbackRoutes } from "../../src/sessions/agent-callback.ts";

/** The server's side of an agent's run, without a database: the real routes and a real store of blobs. */
export interface AgentDesk {
  readonly env: Readonly<Record<string, string>>;
  readonly blobs: ReturnType<typeof directoryBlobs>;
  /** What the next run begins with. */
  head: BlobContent | null;
  stimulus: unknown;
  permissions: readonly string[];
  /** Refuses every call, when set. */
  refusal: HoldfastError | null;
  readonly promised: BlobContent[];
  readonly calls: string[];
}

const keyOf = ({ sha256 }: BlobContent) => `bundles/${sha256}`;

export async function openAgentDesk(scope: {
  readonly after: (hook: () => void | Promise<void>) => void;
}): Promise<AgentDesk> {
  const directory = await mkdtemp(join(tmpdir(), "holdfast-desk-"));
  const keys = [{ id: "k", key: randomBytes(32) }];
  let port = 0;
  const blobs = directoryBlobs({
    directory,
    publicUrl: () => `http://127.0.0.1:${port}`,
    keys: [randomBytes(32)],
  });
  const refuse = () => Promise.reject(new HoldfastError("sandbox_fenced", "not an execution"));
  const reports: SandboxReports = {
    progress: refuse,
    pins: refuse,
    result: refuse,
    upload: refuse,
    complete: refuse,
    download: refuse,
    artifact: refuse,
  };
  const called = (name: string) => {
    desk.calls.push(name);
    if (desk.refusal !== null) throw desk.refusal;
  };
  const routes = agentCallbackRoutes({
    async input() {
      called("input");
      const { head, stimulus, permissions } = desk;
      const grant = head === null ? null : await blobs.grantDownload(keyOf(head), head, seconds(60));
      return {
        session: uuidv7(),
        activation: uuidv7(),
        ordinal: 1n,
        run: 1,
        stimulus,
        permissions,
        revision: 0n,
        bundle: head === null || grant === null ? null : { ...grant, ...head },
      };
    },
    async promise(_from, content) {
      called("promise");
      desk.promised.push(content);
      return await blobs.grantUpload(keyOf(content), content, seconds(60));
    },
  });
  const listener = await startCallbackListener({
    host: "127.0.0.1",
    port: 0,
    keys,
    reports,
    routes: [routes],
    beside: blobs.handle,
    log: pino({ level: "silent" }),
  });
  port = listener.port;
  scope.after(async () => {
    await listener.close();
    await rm(directory, { recursive: true, force: true });
  });
  const identity = {
    tenant: brandId<TenantId>("acme"),
    sandbox: brandId<SandboxId>(uuidv7()),
    deadline: instant(4_000_000_000_000_000n),
  };
  const desk: AgentDesk = {
    env: {
      HOLDFAST_CALLBACK_URL: `http://127.0.0.1:${port}/callback/v1`,
      HOLDFAST_TOKEN: callbackToken(keys, identity),
    },
    blobs,
    head: null,
    stimulus: {},
    permissions: [],
    refusal: null,
    promised: [],
    calls: [],
  };
  return desk;
}
