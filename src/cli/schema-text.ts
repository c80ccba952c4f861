import type { HoldfastError } from "../core/errors.ts";
import { migrationLabel } from "../core/schema/migrations.ts";
import type { OnlineState } from "../core/schema/online.ts";
import type { PlannedMigration, SchemaPlan } from "../core/schema/plan.ts";
import type { LiveProcesses, SchemaStatus } from "../core/schema/status.ts";
import type { Verification } from "../core/schema/verify.ts";
import { Advised } from "./failures.ts";

export function lines(text: readonly string[]): string {
  return `${text.join("\n")}\n`;
}

export function statusView(status: SchemaStatus): Record<string, unknown> {
  return {
    ...status,
    applied: status.applied.map(({ version, name, checksum }) => ({ version, name, checksum })),
    pending: status.pending.map(migrationLabel),
    problem: reason(status.problem),
    read: reason(status.read),
    write: reason(status.write),
  };
}

function reason(error: HoldfastError | null): Record<string, string> | null {
  return error === null ? null : { code: error.code, detail: error.detail };
}

export function statusText(status: SchemaStatus): string {
  const { store, applied, pending, problem, supported, read, write, processes, online } = status;
  const version = applied.at(-1);
  return lines([
    `schema         ${version === undefined ? "none" : migrationLabel(version)}`,
    `this release   understands ${String(supported.minimum)} to ${String(supported.maximum)}`,
    ...(store === null
      ? []
      : [
          `installation   ${store.installationId}`,
          `incarnation    ${store.incarnationId}`,
          `epoch          ${String(store.deploymentEpoch)}`,
          `floors         read ${String(store.readerFloor)}, write ${String(store.writerFloor)}`,
          ...processesText(processes),
        ]),
    `pending        ${pending.length === 0 ? "none" : pending.map(migrationLabel).join(", ")}`,
    `online steps   ${onlineText(online)}`,
    `reading        ${read?.detail ?? "fits"}`,
    `writing        ${write?.detail ?? "fits"}`,
    ...(problem === null ? [] : [`problem        ${problem.detail}`]),
  ]);
}

function processesText(processes: readonly LiveProcesses[] | null): string[] {
  if (processes === null) return ["processes      not for this login to see"];
  if (processes.length === 0) return ["processes      none is alive"];
  return processes.map(({ process, release, schema, deploymentEpoch, count }, place) => {
    const head = place === 0 ? "processes" : "";
    const range = `${String(schema.minimum)} to ${String(schema.maximum)}`;
    return `${head.padEnd(15)}${String(count)} ${process} ${release}, understands ${range}, epoch ${String(deploymentEpoch)}`;
  });
}

function onlineText(online: readonly OnlineState[] | null): string {
  const left = (online ?? []).filter(({ state }) => state !== "done");
  return left.length === 0 ? "none" : left.map(({ name, state }) => `${name} (${state})`).join(", ");
}

export function planText(plan: SchemaPlan): string {
  if (plan.pending.length + plan.online.length === 0) return "nothing to apply\n";
  return lines([
    ...plan.pending.flatMap(plannedText),
    ...plan.online.flatMap(({ name, state, objects }) => [
      `online ${name} (${state}): ${nextOf(state)}`,
      ...(objects ?? []).map((object) => `  makes    ${object}`),
    ]),
  ]);
}

function plannedText(planned: PlannedMigration): string[] {
  const { migration, locks, floors, drain, inTheWay } = planned;
  const held = Object.entries(locks ?? {}).map(([table, mode]) => `${table} ${mode}`);
  return [
    migration,
    ...(locks === null ? ["  locks    not known"] : held.map((text) => `  locks    ${text}`)),
    ...(floors === null
      ? []
      : [
          `  floors   read ${String(floors.reader)}, write ${String(floors.writer)}: stop every process below them first`,
        ]),
    ...(drain.length === 0 ? [] : [`  drain    ${drain.join(", ")} first: \`holdfast drain\``]),
    ...inTheWay.map((process) => `  waits    for the end of ${process}`),
  ];
}

export function verificationText(found: Verification): string {
  const { version, digest, objects, online, missing, changed, unexpected } = found;
  return lines([
    `schema version ${String(version)}`,
    `digest         ${digest}`,
    `objects        ${String(objects)}`,
    ...online.filter(({ state }) => state !== "done").map(onlineLeft),
    ...missing.map((object) => `missing        ${object}`),
    ...changed.map((object) => `changed        ${object}`),
    ...unexpected.map((object) => `unexpected     ${object}`),
  ]);
}

/** What is wrong with the store, and what to do about it; null when it is as a fresh install. */
export function verificationFailure(found: Verification): HoldfastError | null {
  const wrong = found.missing.length + found.changed.length;
  const others = found.unexpected.length;
  const halves = found.online.filter(({ state }) => state === "interrupted").map(({ name }) => name);
  const problems = [
    ...(wrong === 0 ? [] : [`${objectsText(wrong)} missing or other than in a fresh install`]),
    ...(others === 0 ? [] : [`${objectsText(others)} none of this release's`]),
    ...(halves.length === 0 ? [] : [`half done: ${halves.join(", ")}`]),
  ];
  if (problems.length === 0) return null;
  const next = [
    ...(wrong === 0 ? [] : ["Put back what is missing or changed as `holdfast schema script` makes it."]),
    ...(others === 0
      ? []
      : ["Drop what is unexpected, or move it out of the schema holdfast; nothing here needs it."]),
    ...(halves.length === 0 ? [] : ["`holdfast schema apply --online` goes on with what is half done."]),
  ];
  return new Advised("schema_drift", problems.join("; "), next.join("\n  "));
}

function objectsText(count: number): string {
  return count === 1 ? "1 object is" : `${String(count)} objects are`;
}

function onlineLeft({ name, state, objects }: OnlineState): string {
  const made = objects === null || objects.length === 0 ? "" : `, ${objects.join(", ")}`;
  return `online step    ${name} (${state})${made}: ${nextOf(state)}`;
}

function nextOf(state: OnlineState["state"]): string {
  return state === "running" ? "another session is at it" : "`holdfast schema apply --online`";
}
