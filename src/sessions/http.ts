import type { BlobStore } from "../core/blob.port.ts";
import type { Routes } from "../http/gateway.ts";
import { activationRoutes } from "./http-activation.ts";
import { agentRoutes } from "./http-agent.ts";
import { revisionRoutes } from "./http-revision.ts";
import { sessionRoutes } from "./http-session.ts";

export interface SessionApi {
  readonly blobs: BlobStore;
  /** Where the sandboxes of an agent are whose template names no runtime. */
  readonly defaultRuntime: string;
  /** How many activations of a session may be unfinished. */
  readonly queueMax: number;
}

/** The routes of agents, of sessions, and of all that belongs to them. */
export function cloudSessionRoutes(api: SessionApi): Routes {
  return (server, gateway) => {
    agentRoutes(server, gateway, api.defaultRuntime);
    sessionRoutes(server, gateway);
    activationRoutes(server, gateway, api.queueMax);
    revisionRoutes(server, gateway, api.blobs);
  };
}
