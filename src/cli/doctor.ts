import { databaseOf } from "../config.ts";
import { brandId, isTenantId, type TenantId } from "../core/ids.ts";
import { type ConnectionSettings, openPools } from "../core/postgres/pool.ts";
import { translateFirst } from "../core/postgres/sqlstate.ts";
import { checkCompatibility } from "../core/schema/compatibility.ts";
import { examine } from "../main/doctor.ts";
import type { DoctorFinding, DoctorReport } from "../wire/doctor.ts";
import { exitCodes } from "../wire/exit-codes.ts";
import { type CommandContext, clientOf, printValue, type ServerFlags } from "./context.ts";
import { namedDatabase } from "./database.ts";
import { Exit, UsageError } from "./failures.ts";
import { age } from "./time-text.ts";
import { visible } from "./visible.ts";

export interface DoctorFlags extends ServerFlags {
  readonly databaseUrl?: string;
  readonly tenant?: string;
}

/**
 * `holdfast doctor`: a database by its URL, or the running server, whose own process then asks. Ends with a code
 * of its own when something was found.
 */
export async function doctor(context: CommandContext, flags: DoctorFlags): Promise<void> {
  const report = await reportOf(context, flags);
  if (flags.output === "json") await printValue(context, "json", report);
  else await context.terminal.out(reportText(context, report));
  if (!report.healthy) throw new Exit(exitCodes.findings);
}

async function reportOf(context: CommandContext, flags: DoctorFlags): Promise<DoctorReport> {
  const { tenant } = flags;
  if (tenant !== undefined && !isTenantId(tenant)) throw new UsageError(`--tenant ${tenant} names no tenant`);
  const settings = settingsOf(context, flags);
  if (settings === null) return clientOf(context, flags).doctor({ tenant });
  const pools = openPools({ settings, name: "holdfast/doctor" });
  try {
    const { installation } = context.config;
    await checkCompatibility(pools.of("operator"), {
      purpose: "read",
      ...(installation === null ? {} : { installation }),
    }).catch((error: unknown) => {
      throw translateFirst(error);
    });
    const db = { pools, committed: () => undefined };
    return await examine(db, tenant === undefined ? null : brandId<TenantId>(tenant));
  } finally {
    await pools.close();
  }
}

/** Of the environment, unless a server is named. */
function usualDatabase(config: CommandContext["config"], flags: DoctorFlags): ConnectionSettings | null {
  return flags.url === undefined && config.database !== null ? databaseOf(config) : null;
}

/** Null: ask the server. A server that is named comes before a database that only the environment names. */
function settingsOf({ config }: CommandContext, flags: DoctorFlags): ConnectionSettings | null {
  return flags.databaseUrl === undefined ? usualDatabase(config, flags) : namedDatabase(flags.databaseUrl);
}

function reportText({ terminal, now }: CommandContext, report: DoctorReport): string {
  const { store, processes, transactions, tables, findings, checks, tenants } = report;
  const { colors } = terminal;
  const [oldest] = transactions;
  const [most] = tables;
  const processText = processes.map(
    ({ process, release, seen_at }) => `${process} ${release}, seen ${age(seen_at, now())} ago`,
  );
  const facts = [
    ["store", `${store.installation}, incarnation ${store.incarnation}`],
    ["schema", `${store.schema}, floors ${store.reader_floor} and ${store.writer_floor}`],
    ["processes", processText.length === 0 ? "none is alive" : processText.join("; ")],
    ["oldest snapshot", oldest === undefined ? "none" : `${oldest.holder}, ${agesOf(oldest)}`],
    ["dead rows", most === undefined ? "none" : `${most.dead_rows} in ${most.name}, ${most.live_rows} live`],
    ["checks", `${checks} over ${tenants} ${tenants === 1 ? "tenant" : "tenants"}`],
  ];
  const head = facts.map(([name = "", text = ""]) => `${name.padEnd(17)}${visible(text)}\n`).join("");
  if (findings.length === 0) return `${head}\n${colors.green("Nothing is wrong.")}\n`;
  return `${head}\n${findings.map((finding) => findingText(finding, terminal)).join("\n")}`;
}

function agesOf({ age_ms, snapshot_age }: DoctorReport["transactions"][number]): string {
  const time = age_ms === null ? "" : `${(age_ms / 1000).toFixed(1)} s, `;
  return `${time}${snapshot_age} transactions`;
}

function findingText(finding: DoctorFinding, terminal: CommandContext["terminal"]): string {
  const { check, severity, promises, tenant, resource, problem, next } = finding;
  const { colors } = terminal;
  const color = severity === "broken" ? colors.red : colors.yellow;
  const carries = promises.length === 0 ? "" : ` (${promises.join(", ")})`;
  const where = tenant === null ? resource : `${tenant}: ${resource}`;
  return `${color(severity)} ${check}${carries}\n  ${terminal.foreign(where)}\n  ${terminal.foreign(problem)}\n  ${next}\n`;
}
