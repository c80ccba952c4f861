import { Command, InvalidArgumentError, Option } from "commander";
import { isHoldfastError } from "../core/errors.ts";
import { brandId, isTenantId, isUuid, type TenantId } from "../core/ids.ts";
import type { Database } from "../core/postgres/transition.ts";
import {
  createPrincipal,
  createTenant,
  createToken,
  findPrincipal,
  listTokens,
  revokeToken,
  rotateToken,
} from "../core/tenant.store.ts";
import { isGrantedScope, scopes } from "../core/tenant.ts";
import { formatInstant, type Instant, type Microseconds } from "../core/time.ts";
import { writeDuration } from "../wire/duration.ts";
import { type CommandContext, type OutputFormat, printValue } from "./context.ts";
import { UsageError } from "./failures.ts";
import { durationFlag, outputFlag } from "./flags.ts";
import { operatorStore, withOperator } from "./operator.ts";
import { tableText } from "./table.ts";
import { age } from "./time-text.ts";
import { visible } from "./visible.ts";

interface TokenFlags {
  readonly tenant: string;
  readonly principal: string;
  readonly scope: string[];
  readonly lifetime: Microseconds;
}

/** `holdfast token`: works on the database, as the operator role, because before the first token there is no API. */
export function tokenCommand(context: CommandContext): Command {
  const command = new Command("token").description("make, list, rotate and revoke the tokens of a tenant");
  command
    .command("create")
    .description("make a token; it is shown once")
    .requiredOption("--tenant <id>", "made when it is new")
    .requiredOption("--principal <name>", "who will use it; made when it is new")
    .addOption(scopeFlag())
    .addOption(durationFlag("--lifetime <duration>", "how long it is good", "90d"))
    .addHelpText(
      "after",
      `
Examples:
  $ holdfast token create --tenant acme --principal ci --scope jobs:read jobs:write
  $ holdfast token create --tenant acme --principal console --scope jobs:read watch:read --lifetime 12h
  $ holdfast token create --tenant acme --principal guest --scope jobs:read:JOB watch:read:JOB

Scopes: ${scopes.join(", ")}. One with a resource's id behind it, such as jobs:read:ID, is good for that one alone.`,
    )
    .action((flags: TokenFlags) =>
      withOperator(operatorStore(context), "holdfast/token", async (db) => {
        const tenant = await ensureTenant(db, flags.tenant);
        const named = { tenant, name: flags.principal };
        const principal = (await findPrincipal(db, named)) ?? (await createPrincipal(db, named));
        const wanted = flags.scope.filter(isGrantedScope);
        const { token, id } = await createToken(db, {
          tenant,
          principal,
          scopes: wanted,
          lifetime: flags.lifetime,
        });
        await context.terminal.err(
          `token ${id} of ${flags.principal} in ${flags.tenant}; it is not shown again:\n`,
        );
        await context.terminal.out(`${token}\n`);
      }),
    );
  command
    .command("list")
    .description("a tenant's tokens, without what they are")
    .requiredOption("--tenant <id>", "whose they are")
    .addOption(outputFlag("text", "json", "yaml"))
    .addHelpText("after", "\nExamples:\n  $ holdfast token list --tenant acme")
    .action((flags: Pick<TokenFlags, "tenant"> & { readonly output: OutputFormat }) =>
      withOperator(operatorStore(context), "holdfast/token", async (db) => {
        const tokens = (await listTokens(db, tenantOf(flags.tenant))).map(tokenView);
        if (flags.output === "json" || flags.output === "yaml") {
          return printValue(context, flags.output, { items: tokens });
        }
        if (tokens.length === 0) return context.terminal.err("no tokens\n");
        await context.terminal.out(tokenTable(tokens, context.now()));
      }),
    );
  command
    .command("rotate <id>")
    .description("make a successor with the same rights; the old one stays good for the overlap")
    .requiredOption("--tenant <id>", "whose it is")
    .addOption(durationFlag("--overlap <duration>", "how long both are good", "24h"))
    .addHelpText(
      "after",
      "\nExamples:\n  $ holdfast token rotate 01976b2c-0000-7000-8000-000000000000 --tenant acme --overlap 1h",
    )
    .action((id: string, flags: Pick<TokenFlags, "tenant"> & { readonly overlap: Microseconds }) =>
      withOperator(operatorStore(context), "holdfast/token", async (db) => {
        const made = await rotateToken(db, {
          tenant: tenantOf(flags.tenant),
          token: tokenIdOf(id),
          overlap: flags.overlap,
        });
        await context.terminal.err(
          `token ${made.id} follows ${id}, which is good for ${writeDuration(flags.overlap)} more; it is not shown again:\n`,
        );
        await context.terminal.out(`${made.token}\n`);
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
      withOperator(operatorStore(context), "holdfast/token", async (db) => {
        await revokeToken(db, { tenant: tenantOf(flags.tenant), token: tokenIdOf(id) });
        await context.terminal.out(`${id} is revoked\n`);
      }),
    );
  return command;
}

function scopeFlag(): Option {
  return new Option("--scope <scope...>", "what it may do")
    .argParser((text: string, before: readonly string[] | undefined) => {
      if (!isGrantedScope(text)) {
        throw new InvalidArgumentError(`It is one of ${scopes.join(", ")}, or one with :ID behind it.`);
      }
      return before === undefined || before === everyScope ? [text] : [...before, text];
    })
    .default(everyScope);
}

const everyScope: readonly string[] = ["*"];

function tokenIdOf(text: string): string {
  if (!isUuid(text)) throw new UsageError(`${JSON.stringify(visible(text))} is no token's id`);
  return text;
}

const timeOrNull = (at: Instant | null) => (at === null ? null : formatInstant(at));

function tokenView(row: Awaited<ReturnType<typeof listTokens>>[number]) {
  return {
    id: row.token_id,
    principal: row.principal,
    scopes: row.scopes,
    created_at: formatInstant(row.created_at),
    expires_at: formatInstant(row.expires_at),
    revoked_at: timeOrNull(row.revoked_at),
    last_used_at: timeOrNull(row.last_used_at),
  };
}

function tokenTable(tokens: readonly ReturnType<typeof tokenView>[], now: number): string {
  const heading = ["ID", "PRINCIPAL", "SCOPES", "AGE", "EXPIRES", "REVOKED", "LAST USED"];
  const rows = tokens.map((token) => [
    token.id,
    token.principal,
    token.scopes.join(" "),
    age(token.created_at, now),
    token.expires_at.slice(0, 16),
    token.revoked_at?.slice(0, 16) ?? "",
    token.last_used_at === null ? "never" : `${age(token.last_used_at, now)} ago`,
  ]);
  return tableText(heading, rows, (cell) => cell);
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
