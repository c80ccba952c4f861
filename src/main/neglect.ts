import type { Finding } from "../core/invariant.store.ts";
import type { LeaseKind } from "../core/lease.ts";

/** Leases of one kind and queue that are due for longer than five minutes. */
export interface NeglectedLine {
  readonly kind: LeaseKind;
  /** A runtime, a pool, what is removed, or of Work the number of a version and a queue: `7.default`. */
  readonly queue: string;
  readonly count: bigint;
}

export interface Neglect {
  readonly lines: readonly NeglectedLine[];
  /** Of controllers that are alive. */
  readonly runtimes: ReadonlySet<string>;
  /** Versions of Work by their number. */
  readonly versions: ReadonlyMap<number, WorkVersion>;
}

export interface WorkVersion {
  readonly name: string;
  readonly version: string;
  /** Processes that are alive and run it, whichever queues they take. */
  readonly runners: number;
}

/** What nobody takes, each with the process that would take it. */
export function neglectOf({ lines, runtimes, versions }: Neglect): Finding[] {
  return lines.map((line) => ({
    check: "neglectedLeases",
    promises: [],
    tenant: null,
    ...advice(line, runtimes, versions),
    problem: `${line.count} ${line.count === 1n ? "is" : "are"} due for more than five minutes, and nobody takes ${line.count === 1n ? "it" : "them"}`,
  }));
}

type Advice = Pick<Finding, "resource" | "next">;

function advice(
  { kind, queue }: NeglectedLine,
  runtimes: Neglect["runtimes"],
  versions: Neglect["versions"],
): Advice {
  switch (kind) {
    case "work":
      return workAdvice(queue, versions);
    case "execution":
    case "session":
    case "activation":
      return { resource: `${kind}/${queue}`, next: ofRuntime(queue, runtimes) };
    case "admission":
    case "sandbox":
    case "retention":
      return { resource: `${kind}/${queue}`, next: ofController(runtimes, "") };
    case "publication":
      return {
        resource: `${kind}/${queue}`,
        next: ofController(runtimes, " that can reach the destinations of sessions"),
      };
  }
}

function ofRuntime(runtime: string, runtimes: Neglect["runtimes"]): string {
  return runtimes.has(runtime)
    ? `A controller with the runtime ${runtime} is alive: look into its log.`
    : `Start a controller with this runtime: \`holdfast controller --runtime ${runtime}\`.`;
}

function ofController(runtimes: Neglect["runtimes"], which: string): string {
  return runtimes.size === 0
    ? `Start a controller${which}: \`holdfast controller\`.`
    : `A controller is alive: look into its log, or start one${which}.`;
}

/** No controller takes Work: a process of the program whose version it is does. */
function workAdvice(lane: string, versions: Neglect["versions"]): Advice {
  const dot = lane.indexOf(".");
  const [number, queue] = [Number(lane.slice(0, dot)), lane.slice(dot + 1)];
  const found = versions.get(number);
  if (found === undefined) {
    return { resource: `work/${lane}`, next: "Start a worker that runs this version and takes its queue." };
  }
  const { name, version, runners } = found;
  const wanted = `a worker that runs ${name} ${version} and takes the queue ${queue}`;
  const alive =
    runners === 1
      ? "1 process runs the version: look into its log"
      : `${runners} processes run the version: look into their logs`;
  return {
    resource: `work/${name}/${version}/${queue}`,
    next:
      runners === 0 ? `Start ${wanted}: no live process runs this version.` : `${alive}, or start ${wanted}.`,
  };
}
