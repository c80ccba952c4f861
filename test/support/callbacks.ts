import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pino } from "pino";
import { type DirectoryBlobs, directoryBlobs } from "../../src/blobs/directory/directory-blobs.ts";
import type { TenantId } from "../../src/core/ids.ts";
import type { Database } from "../../src/core/postgres/transition.ts";
import { executionReports } from "../../src/executions/reports.ts";
import { type CallbackKeys, callbackToken } from "../../src/sandboxes/callback.ts";
import { startCallbackListener } from "../../src/sandboxes/http.ts";
import type { Sandbox } from "../../src/sandboxes/sandbox.ts";

export interface Answer {
  readonly status: number;
  /** Of a problem document; undefined when it is none. */
  readonly code: string | undefined;
  readonly body: Readonly<Record<string, unknown>>;
}

/** The internal listener over a real store and real blobs, and whoever calls it from a sandbox. */
export interface Callbacks {
  readonly blobs: DirectoryBlobs;
  readonly directory: string;
  readonly keys: CallbackKeys;
  readonly url: string;
  readonly token: (sandbox: Sandbox, tenant?: TenantId) => string;
  readonly post: (token: string | null, path: string, body: unknown) => Promise<Answer>;
  /** Use a capability as it was given, or with other headers. */
  readonly transfer: (
    grant: Readonly<Record<string, unknown>>,
    bytes?: Buffer,
    change?: { readonly url?: string; readonly method?: string },
  ) => Promise<{ readonly status: number; readonly bytes: Buffer }>;
}

export async function openCallbacks(
  scope: { readonly after: (hook: () => Promise<void>) => void },
  db: Database,
): Promise<Callbacks> {
  const directory = await mkdtemp(join(tmpdir(), "hf-callbacks-"));
  scope.after(() => rm(directory, { recursive: true, force: true }));
  const keys = [{ id: "k1", key: randomBytes(32) }];
  let port = 0;
  const blobs = directoryBlobs({
    directory,
    publicUrl: () => `http://127.0.0.1:${port}`,
    keys: [randomBytes(32)],
  });
  const listener = await startCallbackListener({
    host: "127.0.0.1",
    port: 0,
    keys,
    reports: executionReports(db, blobs),
    beside: blobs.handle,
    log: pino({ level: "silent" }),
  });
  scope.after(() => listener.close());
  port = listener.port;
  const url = `http://127.0.0.1:${port}/callback/v1`;
  return {
    blobs,
    directory,
    keys,
    url,
    token: ({ id, deadline, tenant: own }, tenant = own) =>
      callbackToken(keys, { tenant, sandbox: id, deadline }),
    async post(token, path, body) {
      const response = await fetch(url + path, {
        method: "POST",
        headers: {
          "content-type": "application/json",
          ...(token === null ? {} : { authorization: `Bearer ${token}` }),
        },
        body: typeof body === "string" ? body : JSON.stringify(body),
        signal: AbortSignal.timeout(20_000),
      });
      const answer = (await response.json()) as Record<string, unknown>;
      return {
        status: response.status,
        code: typeof answer["code"] === "string" ? answer["code"] : undefined,
        body: answer,
      };
    },
    async transfer(grant, bytes, change = {}) {
      const given = grant as { url: string; method: string; headers: Record<string, string> };
      const response = await fetch(change.url ?? given.url, {
        method: change.method ?? given.method,
        headers: Object.fromEntries(
          Object.entries(given.headers).filter(([name]) => name !== "content-length"),
        ),
        ...(bytes === undefined ? {} : { body: new Uint8Array(bytes) }),
        signal: AbortSignal.timeout(20_000),
      });
      return { status: response.status, bytes: Buffer.from(await response.arrayBuffer()) };
    },
  };
}
