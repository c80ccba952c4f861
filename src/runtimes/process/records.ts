import type { SandboxOutcome, SandboxSpec } from "../../core/runtime.port.ts";
import { type Instant, instant, type Microseconds, microseconds } from "../../core/time.ts";
import {
  asFields,
  big,
  bigOrNull,
  type Fields,
  oneOf,
  parseFields,
  text,
  textMap,
  textOrNull,
  texts,
  whole,
  wholeOrNull,
} from "./fields.ts";
import type { ProcessIdentity } from "./identity.ts";

/** What a supervisor needs of the runtime's configuration, fixed when the object is created. */
export interface Settings {
  readonly secretsDirectory: string;
  readonly socketDirectory: string;
  readonly searchPath: string;
  readonly logBytesMax: number;
}

/** `request.json`: the object as it was asked for. Holds no secret. */
export interface RequestRecord {
  readonly uid: string;
  readonly name: string;
  readonly installation: string;
  readonly tenant: string;
  readonly sandbox: string;
  readonly specDigest: string;
  readonly spec: SandboxSpec;
  readonly epoch: bigint;
  readonly holdLimit: Microseconds;
  readonly createdAt: Instant;
  readonly settings: Settings;
}

/** `supervisor.json`: the one process that may ever start the command, or `closed`: there will be none. */
export type ClaimRecord =
  | { readonly kind: "supervisor"; readonly identity: ProcessIdentity; readonly socket: string }
  | { readonly kind: "closed"; readonly message: string };

/** `state.json`: what the supervisor decides by. It never writes `stopped`: an outcome on disk means that. */
export interface StateRecord {
  readonly epoch: bigint;
  readonly phase: "held" | "running" | "stopping" | "stopped";
  readonly releasedBy: bigint | null;
}

export const firstState = (request: RequestRecord): StateRecord => ({
  epoch: request.epoch,
  phase: "held",
  releasedBy: null,
});

/** `command.json`: the main process, which leads a session and a process group of its own. */
export interface CommandRecord {
  readonly pid: number;
  readonly startTime: string | null;
  readonly startedAt: Instant;
}

/** `outcome.json`: how it ended, and what shows that nothing of it runs. */
export interface OutcomeRecord {
  readonly outcome: SandboxOutcome;
  readonly proof: string;
}

const outcomeKinds = [
  "exited",
  "signaled",
  "out_of_memory",
  "evicted",
  "deadline",
  "stopped",
  "never_started",
  "lost",
  "start_failed",
  "unknown",
] as const satisfies readonly SandboxOutcome["kind"][];

export function readRequest(document: string): RequestRecord {
  const fields = parseFields(document);
  const settings = asFields(fields.settings, "settings");
  return {
    uid: text(fields, "uid"),
    name: text(fields, "name"),
    installation: text(fields, "installation"),
    tenant: text(fields, "tenant"),
    sandbox: text(fields, "sandbox"),
    specDigest: text(fields, "specDigest"),
    spec: readSpec(asFields(fields.spec, "spec")),
    epoch: big(fields, "epoch"),
    holdLimit: microseconds(big(fields, "holdLimit")),
    createdAt: instant(big(fields, "createdAt")),
    settings: {
      secretsDirectory: text(settings, "secretsDirectory"),
      socketDirectory: text(settings, "socketDirectory"),
      searchPath: text(settings, "searchPath"),
      logBytesMax: whole(settings, "logBytesMax"),
    },
  };
}

function readSpec(fields: Fields): SandboxSpec {
  const secrets = asFields(fields.secrets, "secrets");
  const limits = asFields(fields.limits, "limits");
  return {
    command: texts(fields, "command"),
    env: textMap(fields, "env"),
    secrets: Object.fromEntries(
      Object.keys(secrets).map((name) => {
        const reference = asFields(secrets[name], name);
        return [name, { name: text(reference, "name"), key: text(reference, "key") }];
      }),
    ),
    image: textOrNull(fields, "image"),
    grace: microseconds(big(fields, "grace")),
    limits: {
      cpuMillicores: whole(limits, "cpuMillicores"),
      memoryBytes: whole(limits, "memoryBytes"),
      diskBytes: whole(limits, "diskBytes"),
    },
  };
}

export function readPrivateEnv(document: string): Readonly<Record<string, string>> {
  return textMap(parseFields(document), "env");
}

export function readClaim(document: string): ClaimRecord {
  const fields = parseFields(document);
  if (oneOf(fields, "kind", ["supervisor", "closed"]) === "closed") {
    return { kind: "closed", message: text(fields, "message") };
  }
  const identity = asFields(fields.identity, "identity");
  return {
    kind: "supervisor",
    identity: {
      boot: text(identity, "boot"),
      namespace: text(identity, "namespace"),
      pid: whole(identity, "pid"),
      startTime: text(identity, "startTime"),
    },
    socket: text(fields, "socket"),
  };
}

export function readState(document: string): StateRecord {
  const fields = parseFields(document);
  return {
    epoch: big(fields, "epoch"),
    phase: oneOf(fields, "phase", ["held", "running", "stopping", "stopped"]),
    releasedBy: bigOrNull(fields, "releasedBy"),
  };
}

export function readCommand(document: string): CommandRecord {
  const fields = parseFields(document);
  return {
    pid: whole(fields, "pid"),
    startTime: textOrNull(fields, "startTime"),
    startedAt: instant(big(fields, "startedAt")),
  };
}

export function readOutcome(document: string): OutcomeRecord {
  const fields = parseFields(document);
  const outcome = asFields(fields.outcome, "outcome");
  const time = (key: string): Instant | null => {
    const value = bigOrNull(outcome, key);
    return value === null ? null : instant(value);
  };
  return {
    outcome: {
      kind: oneOf(outcome, "kind", outcomeKinds),
      exitCode: wholeOrNull(outcome, "exitCode"),
      signal: textOrNull(outcome, "signal"),
      message: text(outcome, "message"),
      startedAt: time("startedAt"),
      finishedAt: time("finishedAt"),
    },
    proof: text(fields, "proof"),
  };
}

/** The host's clock, for people who read the record. Nothing is decided by it. */
export const now = (): Instant => instant(BigInt(Date.now()) * 1000n);
