import type { Client } from "../../src/client/client.ts";
import type { Database } from "../../src/core/postgres/transition.ts";
import { createPrincipal, createToken } from "../../src/core/tenant.store.ts";
import type { GrantedScope } from "../../src/core/tenant.ts";
import { seconds } from "../../src/core/time.ts";
import type { Work } from "../../src/work/handle.ts";
import { openWork } from "../../src/work/open.ts";
import { type ControllerChoices, type Stack, type StackScope, testStack } from "./stack.ts";

/** The whole product with a console: PostgreSQL, gateway and controller, and who may look at it. */
export interface ConsoleStand {
  readonly stack: Stack;
  readonly url: string;
  readonly port: number;
  readonly token: string;
  readonly client: Client;
  /** For what no client may do: to be a worker that is lost, or an agent of its own. */
  readonly db: Database;
  /** Of somebody else, who may as much. */
  readonly anotherToken: (name?: string) => Promise<string>;
  /** A program's own handle, to register and run Work. */
  readonly work: () => Promise<Work>;
}

const everything: readonly GrantedScope[] = ["*", "operator"];

export async function consoleStand(
  scope: StackScope,
  {
    scopes = everything,
    ...choices
  }: { readonly scopes?: readonly GrantedScope[] } & Pick<ControllerChoices, "deliveries"> = {},
): Promise<ConsoleStand> {
  const stack = await testStack(scope);
  const foundation = await stack.foundation("dev");
  await stack.controller(foundation, choices);
  const { gateway, token, client } = await stack.gateway(foundation, { operator: true, scopes });
  return {
    stack,
    url: gateway.address,
    port: gateway.port,
    token,
    client,
    db: foundation.db,
    async anotherToken(name = "another") {
      const { db } = foundation;
      const { tenant } = stack;
      const principal = await createPrincipal(db, { tenant, name });
      return (await createToken(db, { tenant, principal, scopes, lifetime: seconds(3_600) })).token;
    },
    async work() {
      const { database, tenant } = stack;
      const work = await openWork({
        database: database.app,
        tenant,
        name: "invoices",
        onError: () => undefined,
      });
      scope.after(() => work.close());
      return work;
    },
  };
}
