import { Command, Option } from "commander";
import { duration } from "../config/readers.ts";
import { required } from "../config.ts";
import { isHoldfastError } from "../core/errors.ts";
import { brandId, isTenantId, type TenantId } from "../core/ids.ts";
import { openPools } from "../core/postgres/pool.ts";
import type { Database } from "../core/postgres/transition.ts";
import { checkCompatibility } from "../core/schema/compatibility.ts";
import {
  createPrincipal,
  createTenant,
  createToken,
  findPrincipal,
  revokeToken,
} from "../core/tenant.store.ts";
import { isScope, type Scope, scopes } from "../core/tenant.ts";
import type { CommandContext } from "./context.ts";
import { UsageError } from "./failures.ts";

interface TokenFlags {
  readonly tenant: string;
  readonly principal: string;
  readonly scope: string[];
  readonly lifetime: string;
}

/** `holdfast token`: works on the database, as the operator role, because before the first token there is no API. */
export function tokenCommand(context: CommandContext): Command {
  const command = new Command("token").description("make and revoke the tokens of a tenant");
  command
    .command("create")
    .description("make a token; it is shown once")
    .requiredOption("--tenant <id>", "made when it is new")
    .requiredOption("--principal <name>", "who will use it; made when it is new")
    .addOption(new Option("--scope <scope...>", "what it may do").choices(scopes).default(["*"]))
    .option("--lifetime <duration>", "how long it is good", "90d")
    .addHelpText(
      "after",
      `
Examples:
  $ holdfast token create --tenant acme --principal ci --scope jobs:read jobs:write
  $ holdfast token create --tenant acme --principal console --scope jobs:read watch:read --lifetime 12h`,
    )
    .action((flags: TokenFlags) =>
      withOperator(context, async (db) => {
        const tenant = await ensureTenant(db, flags.tenant);
        const named = { tenant, name: flags.principal };
        const principal = (await findPrincipal(db, named)) ?? (await createPrincipal(db, named));
        const wanted: Scope[] = flags.scope.filter(isScope);
        const { token, id } = await createToken(db, {
          tenant,
          principal,
          scopes: wanted,
          lifetime: duration(flags.lifetime),
        });
        await context.terminal.err(
          `token ${id} of ${flags.principal} in ${flags.tenant}; it is not shown again:\n`,
        );
        await context.terminal.out(`${token}\n`);
      }),
    );
  command
    .command("revoke <id>")
    .description("from now on it lets nobody in")
    .requiredOption("--tenant <id>", "whose it is")
    .addHelpText(
      "after",
      "\nExamples:\n  $ holdfast token revoke 01976b2c-0000-7000-8000-000000000000 --tenant acme",
    )
    .action((id: string, flags: Pick<TokenFlags, "tenant">) =>
      withOperator(context, async (db) => {
        await revokeToken(db, { tenant: tenantOf(flags.tenant), token: id });
        await context.terminal.out(`${id} is revoked\n`);
      }),
    );
  return command;
}

function tenantOf(text: string): TenantId {
  if (!isTenantId(text))
    throw new UsageError("--tenant takes lower-case letters, digits and inner hyphens, at most 63");
  return text;
}

async function ensureTenant(db: Database, text: string): Promise<TenantId> {
  try {
    return await createTenant(db, tenantOf(text));
  } catch (error) {
    if (!isHoldfastError(error, "conflict")) throw error;
    return brandId<TenantId>(text);
  }
}

async function withOperator(context: CommandContext, body: (db: Database) => Promise<void>): Promise<void> {
  const pools = openPools({ settings: required(context.config, "database"), name: "holdfast/token" });
  try {
    const store = await checkCompatibility(pools.of("operator"), { purpose: "write" });
    await body({ pools, deploymentEpoch: store.deploymentEpoch, committed: () => undefined });
  } finally {
    await pools.close();
  }
}
