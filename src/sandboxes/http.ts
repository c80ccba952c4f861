import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { FastifyRequest } from "fastify";
import type { Logger } from "pino";
import { Type } from "typebox";
import type { Capability } from "../core/blob.port.ts";
import { HoldfastError } from "../core/errors.ts";
import type { Database } from "../core/postgres/transition.ts";
import { formatInstant } from "../core/time.ts";
import { acceptJson } from "../http/body.ts";
import type { GatewayServer } from "../http/gateway.ts";
import { healthRoutes, type LoopProgress } from "../http/health.ts";
import { closeGracefully, createListener, listen, refuse } from "../http/listener.ts";
import {
  ArtifactReport,
  CompleteRequest,
  callbackLimits,
  DownloadRequest,
  ObjectName,
  PinsReport,
  ProgressReport,
  ResultReport,
  UploadRequest,
} from "../wire/callback.ts";
import { PhaseName } from "../wire/job.ts";
import { type CallbackKeys, type SandboxIdentity, verifyCallbackToken } from "./callback.ts";

/** What the owner of sandboxes does with their reports. Each is one transition under the sandbox's own fence. */
export interface SandboxReports {
  progress(from: SandboxIdentity, report: ProgressReport): Promise<void>;
  pins(
    from: SandboxIdentity,
    report: PinsReport,
  ): Promise<{ pins: Record<string, string>; missing: string[] }>;
  result(from: SandboxIdentity, result: Readonly<Record<string, unknown>>): Promise<void>;
  upload(from: SandboxIdentity, name: string, request: UploadRequest): Promise<Capability>;
  complete(from: SandboxIdentity, name: string, request: CompleteRequest, signal: AbortSignal): Promise<void>;
  download(
    from: SandboxIdentity,
    object: { readonly phase: string; readonly name: string },
  ): Promise<Capability & { readonly bytes: bigint; readonly sha256: string; readonly mediaType: string }>;
  artifact(
    from: SandboxIdentity,
    report: ArtifactReport,
  ): Promise<{ object: string; bytes: bigint; sha256: string }>;
}

/** Serves what is not a callback on the same listener, such as capabilities of a directory store. False: not for it. */
export type Beside = (request: IncomingMessage, response: ServerResponse) => Promise<boolean>;

/** What the process says of itself to probes and to whoever gathers metrics: no payload, no name of a tenant. */
export interface Monitor {
  readonly db: Database;
  readonly installation: string;
  readonly progress: () => readonly LoopProgress[];
  readonly metrics: () => Promise<{ readonly contentType: string; readonly text: string }>;
}

/** What sandboxes of another kind report, on the same listener and by the same tokens. */
export type CallbackRoutes = (
  server: GatewayServer,
  base: string,
  from: (request: FastifyRequest) => SandboxIdentity,
) => void;

export interface CallbackListener {
  readonly port: number;
  close(): Promise<void>;
}

/**
 * The internal listener: what sandboxes report (E17), described in docs/reference/sandbox-contract.md, and the
 * process's own health and metrics. It is not the public one: its tokens are derived, one a sandbox, and open
 * nothing else.
 */
export async function startCallbackListener(options: {
  readonly host: string;
  readonly port: number;
  readonly keys: CallbackKeys;
  readonly reports: SandboxReports;
  readonly routes?: readonly CallbackRoutes[];
  readonly beside: Beside;
  readonly monitor?: Monitor;
  readonly log: Logger;
}): Promise<CallbackListener> {
  const { keys, reports } = options;
  const server = createListener({
    log: options.log,
    bodyBytes: callbackLimits.bodyBytesMax,
    serve: (handler, settings) =>
      createServer(settings, (request, response) => {
        options.beside(request, response).then(
          (served) => {
            if (!served) handler(request, response);
          },
          (error: unknown) => {
            options.log.error({ err: error }, "an object could not be served");
            response.destroy();
          },
        );
      }),
  });
  server.setErrorHandler(refuse);
  server.setNotFoundHandler(() => {
    throw new HoldfastError("not_found", "there is nothing at this path");
  });
  acceptJson(server, { bodyBytes: callbackLimits.bodyBytesMax, jsonDepth: 32 });
  const ofObject = Type.Object({ name: ObjectName });
  const base = "/callback/v1";

  function from(request: FastifyRequest): SandboxIdentity {
    const [, token] = /^Bearer (\S{1,512})$/.exec(request.headers.authorization ?? "") ?? [];
    const identity = token === undefined ? undefined : verifyCallbackToken(keys, token);
    if (identity === undefined)
      throw new HoldfastError("unauthenticated", "the token is not one of a sandbox of ours");
    return identity;
  }
  // Before the body is read: who may not speak is not listened to.
  server.addHook("onRequest", (request, _reply, done) => {
    if (!request.is404 && request.routeOptions.config.scope !== "public") from(request);
    done();
  });
  if (options.monitor !== undefined) monitorRoutes(server, options.monitor);

  server.post(`${base}/progress`, { schema: { body: ProgressReport } }, async (request) => {
    await reports.progress(from(request), request.body);
    return {};
  });
  server.post(`${base}/pins`, { schema: { body: PinsReport } }, (request) =>
    reports.pins(from(request), request.body),
  );
  server.post(`${base}/result`, { schema: { body: ResultReport } }, async (request) => {
    await reports.result(from(request), request.body);
    return {};
  });
  server.post(
    `${base}/objects/:name/upload`,
    { schema: { params: ofObject, body: UploadRequest } },
    async (request) => capabilityView(await reports.upload(from(request), request.params.name, request.body)),
  );
  server.post(
    `${base}/objects/:name/complete`,
    { schema: { params: ofObject, body: CompleteRequest } },
    async (request, reply) => {
      const { bytes, sha256 } = request.body;
      const gone = new AbortController();
      reply.raw.once("close", () => gone.abort());
      await reports.complete(from(request), request.params.name, request.body, gone.signal);
      return { bytes, sha256 };
    },
  );
  server.post(
    `${base}/objects/:phase/:name/download`,
    { schema: { params: Type.Object({ phase: PhaseName, name: ObjectName }), body: DownloadRequest } },
    async (request) => {
      const grant = await reports.download(from(request), request.params);
      return {
        ...capabilityView(grant),
        bytes: Number(grant.bytes),
        sha256: grant.sha256,
        media_type: grant.mediaType,
      };
    },
  );
  server.post(`${base}/artifact`, { schema: { body: ArtifactReport } }, async (request) => {
    const { object, bytes, sha256 } = await reports.artifact(from(request), request.body);
    return { object, bytes: Number(bytes), sha256 };
  });

  for (const routes of options.routes ?? []) routes(server, base, from);

  await listen(server, options);
  return {
    port: (server.server.address() as AddressInfo).port,
    close: () => closeGracefully(server),
  };
}

function monitorRoutes(server: GatewayServer, { db, installation, progress, metrics }: Monitor): void {
  healthRoutes(server, { db, installation, role: "controller", progress });
  server.get("/metrics", { config: { scope: "public" } }, async (_request, reply) => {
    const { contentType, text } = await metrics();
    // As bytes: the framework would change the media type's parameters.
    return reply.type(contentType).send(Buffer.from(text));
  });
}

export function capabilityView({ method, url, headers, expiresAt }: Capability) {
  return { method, url, headers, expires_at: formatInstant(expiresAt) };
}
