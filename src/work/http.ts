import type { GatewayServer, Routes } from "../http/gateway.ts";
import { workChangeRoutes } from "./http-change.ts";
import { installationRoutes } from "./http-installation.ts";
import { workReadRoutes } from "./http-read.ts";
import { submitRoutes } from "./http-submit.ts";

/** The routes of Work that every gateway serves. */
export const workRoutes: Routes = (server: GatewayServer, gateway) => {
  submitRoutes(server, gateway);
  workReadRoutes(server, gateway);
  workChangeRoutes(server, gateway);
};

/** Those that change the installation: only for a process whose login has the operator role. */
export const workOperatorRoutes: Routes = installationRoutes;
