import { Type } from "typebox";
import { HoldfastError } from "../core/errors.ts";
import type { Role } from "../core/postgres/pool.ts";
import type { Database } from "../core/postgres/transition.ts";
import { checkCompatibility } from "../core/schema/compatibility.ts";
import type { GatewayServer } from "./gateway.ts";
import { problems } from "./openapi.ts";

/** Whether a loop of this process gets on, or since when and why not. */
export interface LoopProgress {
  readonly name: string;
  readonly progressing: boolean;
  readonly detail: string;
}

const Health = Type.Object({ status: Type.String(), loops: Type.Optional(Type.Array(Type.Unknown())) });

export function healthRoutes(
  server: GatewayServer,
  options: {
    readonly db: Database;
    readonly installation: string | null;
    /** What the process is: it reads the store with this role's own rights. */
    readonly role?: Role;
    readonly progress: () => readonly LoopProgress[];
  },
): void {
  server.get(
    "/healthz",
    {
      config: { scope: "public" },
      schema: {
        operationId: "health",
        summary: "The process is alive",
        tags: ["server"],
        security: [],
        response: { 200: Health },
      },
    },
    () => ({ status: "alive" }),
  );
  server.get(
    "/readyz",
    {
      config: { scope: "public" },
      schema: {
        operationId: "ready",
        summary: "The schema fits under the process's own role, the database answers, the loops get on",
        tags: ["server"],
        security: [],
        response: { 200: Health, ...problems(503) },
      },
    },
    async () => {
      const { db, installation, role = "gateway" } = options;
      const store = await checkCompatibility(db.pools.of(role), {
        purpose: "write",
        ...(installation === null ? {} : { installation }),
      });
      if (store.deploymentEpoch !== db.deploymentEpoch) {
        throw new HoldfastError(
          "deployment_fenced",
          `the store is at deployment epoch ${store.deploymentEpoch}, this process is of ${db.deploymentEpoch}`,
        );
      }
      const loops = options.progress();
      const stuck = loops.filter((loop) => !loop.progressing);
      if (stuck.length > 0) {
        throw new HoldfastError("unavailable", `${stuck.map(({ name }) => name).join(", ")}: no progress`, {
          retryAfterSeconds: 1,
          extra: { loops },
        });
      }
      return { status: "ready", loops: [...loops] };
    },
  );
}
