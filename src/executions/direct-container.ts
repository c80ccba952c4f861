import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { promisify } from "node:util";
import { HoldfastError } from "../core/errors.ts";
import { assertOutsideTransition } from "../core/outside.ts";
import { type Instant, instant } from "../core/time.ts";
import type { DirectPhase } from "./direct-plan.ts";

/** A container of this host, as its labels and its runtime tell. */
export interface Container {
  readonly id: string;
  readonly state: "created" | "running" | "exited";
  readonly job: string;
  /** Which phase of the plan, from 0. */
  readonly phase: number;
  /** Of the job. Kept here, because the queue has no place for it. */
  readonly deadline: Instant;
}

/** The command answered, and it was no. Its own words, in short, are the message. */
export class ContainerRefused extends Error {
  override readonly name = "ContainerRefused";
}

/** The `docker` command of this host, or one that takes the same words. Nothing here goes through a shell. */
export interface Containers {
  /** `invalid_configuration` when there is no such command, `unavailable` when it has nothing to answer with. */
  check(): Promise<void>;
  list(job?: string): Promise<Container[]>;
  create(
    job: string,
    number: number,
    phase: DirectPhase,
    deadline: Instant,
    signal: AbortSignal,
  ): Promise<string>;
  start(id: string): Promise<void>;
  /** Its exit code, once it has one. Can be asked again. */
  wait(id: string, signal: AbortSignal): Promise<number>;
  /** SIGTERM, and SIGKILL after the grace. */
  stop(id: string, graceSeconds: number): Promise<void>;
  /** Refused while it runs: so what was removed without having been started never runs. */
  remove(id: string): Promise<void>;
}

const answerMs = 60_000;
/** An image may have to be fetched first. */
const createMs = 1_800_000;
const outputBytesMax = 4_194_304;
const wordsMax = 500;

const run = promisify(execFile);

export function containersOf(options: {
  readonly command: string;
  readonly installation: string;
  readonly tenant: string;
}): Containers {
  const { command, installation, tenant } = options;

  async function call(
    words: readonly string[],
    { timeoutMs = answerMs, signal }: { readonly timeoutMs?: number; readonly signal?: AbortSignal } = {},
  ): Promise<string> {
    assertOutsideTransition(`${command} ${String(words[0])}`);
    try {
      const settings = { timeout: timeoutMs, killSignal: "SIGKILL", maxBuffer: outputBytesMax } as const;
      const { stdout } = await run(command, words, signal === undefined ? settings : { ...settings, signal });
      return stdout;
    } catch (error) {
      throw faultOf(command, words, error);
    }
  }

  const labels = { "holdfast.installation": installation, "holdfast.tenant": tenant };
  const format = [".ID", ".State", ...["job", "phase", "deadline"].map((name) => `.Label "holdfast.${name}"`)]
    .map((field) => `{{${field}}}`)
    .join(" ");

  return {
    async check() {
      await call(["version", "--format", "{{.Server.Version}}"]).catch((error: unknown) => {
        if (!(error instanceof ContainerRefused)) throw error;
        throw new HoldfastError("unavailable", `\`${command} version\` failed: ${error.message}`);
      });
    },
    async list(job) {
      const wanted = job === undefined ? labels : { ...labels, "holdfast.job": job };
      const filters = Object.entries(wanted).flatMap(([name, value]) => [
        "--filter",
        `label=${name}=${value}`,
      ]);
      const text = await call(["ps", "--all", "--no-trunc", ...filters, "--format", format]);
      return text.split("\n").flatMap(readContainer);
    },
    async create(job, number, phase, deadline, signal) {
      const own = { ...labels, "holdfast.job": job, "holdfast.phase": number, "holdfast.deadline": deadline };
      const env = { ...phase.env, HOLDFAST_JOB: job, HOLDFAST_PHASE: phase.name };
      const name = `holdfast-${job}-${phase.name}-${randomBytes(3).toString("hex")}`;
      const words = ["create", "--name", name];
      for (const [key, value] of Object.entries(own)) words.push("--label", `${key}=${value}`);
      for (const [key, value] of Object.entries(env)) words.push("--env", `${key}=${value}`);
      words.push("--cpus", String(phase.cpuMillicores / 1000), "--memory", `${phase.memoryBytes}b`);
      words.push(phase.image, ...phase.command);
      const id = (await call(words, { timeoutMs: createMs, signal })).trim().split("\n").at(-1) ?? "";
      if (/^[0-9a-f]{8,64}$/.test(id)) return id;
      throw new Error(`\`${command} create\` gave no id`);
    },
    async start(id) {
      await call(["start", id]);
    },
    async wait(id, signal) {
      const text = (await call(["wait", id], { timeoutMs: 0, signal })).trim();
      if (/^\d{1,10}$/.test(text)) return Number(text);
      throw new Error(`\`${command} wait\` gave no exit code`);
    },
    async stop(id, graceSeconds) {
      await call(["stop", "-t", String(graceSeconds), id], { timeoutMs: graceSeconds * 1000 + answerMs });
    },
    async remove(id) {
      await call(["rm", "--volumes", id]);
    },
  };
}

const states: Readonly<Record<string, Container["state"]>> = {
  created: "created",
  running: "running",
  paused: "running",
  restarting: "running",
  exited: "exited",
  dead: "exited",
};

/** One line of `ps`; none for what is being removed, or was labelled by somebody else. */
function readContainer(line: string): Container[] {
  const [, id, word, job, phase, deadline] =
    /^([0-9a-f]+) ([a-z]+) ([0-9a-f-]{36}) (\d{1,3}) (\d{1,18})$/.exec(line) ?? [];
  const state = word === undefined ? undefined : states[word];
  if (id === undefined || state === undefined || job === undefined || deadline === undefined) return [];
  return [{ id, state, job, phase: Number(phase), deadline: instant(BigInt(deadline)) }];
}

function faultOf(command: string, words: readonly string[], error: unknown): unknown {
  if (!(error instanceof Error) || error.name === "AbortError" || !("code" in error)) return error;
  const { code } = error;
  if (code === "ENOENT" || code === "EACCES") {
    const detail = `the command \`${command}\` can't be run here (${code}): HOLDFAST_DIRECT_COMMAND names it`;
    return new HoldfastError("invalid_configuration", detail);
  }
  if (typeof code !== "number") return error;
  const said = "stderr" in error && typeof error.stderr === "string" ? error.stderr : "";
  const plain = said
    .replaceAll(/\p{Cc}+/gu, " ")
    .trim()
    .toWellFormed()
    .slice(-wordsMax);
  return new ContainerRefused(plain === "" ? `\`${words[0]}\` ended with ${code}` : plain);
}
