import { randomBytes } from "node:crypto";
import type { PrepareRequest } from "../../core/runtime.port.ts";
import { type Microseconds, toMilliseconds } from "../../core/time.ts";
import { runCommand } from "./exec-daemon.ts";
import { guardCommand, launchScript } from "./guard-command.ts";
import { type GuardAnswer, readGuardLine, readRefusal, readState } from "./guard-state.ts";
import type { Endpoint } from "./lifecycle.ts";
import { ServiceError } from "./service-error.ts";
import { type RetryLimits, retrying } from "./transport.ts";

export interface GuardLimits extends RetryLimits {
  readonly requestMs: number;
  readonly silenceMs: number;
}

/** What a reading of the output gives. Sizes and times are those when it was read. */
export interface OutputReading {
  readonly answer: GuardAnswer;
  readonly out: OutputPart;
  readonly err: OutputPart;
}

export interface OutputPart {
  /** All that there is of this stream. */
  readonly size: number;
  /** When it was last written to, whole seconds since 1970. */
  readonly changedAt: bigint;
  readonly bytes: Buffer;
}

/** Linux takes no longer variable. Base64 makes four bytes of three. */
const partBytesMax = 60 * 1024;

/**
 * The guard of one sandbox, asked through its exec daemon. Every call may be sent again: what it did before it
 * answers as done.
 */
export class Guard {
  readonly #uid: string;
  readonly #endpoint: Endpoint;
  readonly #limits: GuardLimits;

  constructor(uid: string, endpoint: Endpoint, limits: GuardLimits) {
    this.#uid = uid;
    this.#endpoint = endpoint;
    this.#limits = limits;
  }

  /**
   * Make it ours, held at this epoch; or raise the epoch of what was claimed before. `fresh`: it was never released,
   * so a guard that has no record of it has lost none.
   */
  async claim(
    request: PrepareRequest,
    { secrets, fresh }: { readonly secrets: Parameters<typeof launchScript>[2]; readonly fresh: boolean },
    signal: AbortSignal,
  ): Promise<GuardAnswer> {
    const token = randomBytes(8).toString("hex");
    const script = Buffer.from(launchScript(request, this.#uid, secrets));
    // In a variable, because daemons write commands into their own log.
    const part = (index: number) => ({
      HOLDFAST_PART: script.subarray(index * partBytesMax, (index + 1) * partBytesMax).toString("base64"),
    });
    const more = Math.ceil(script.length / partBytesMax) - 1;
    for (let index = 0; index < more; index += 1) {
      await this.#ask("put", [token, index], signal, { envs: part(index + 1) });
    }
    const { epoch, holdLimit, spec } = request;
    const words = [epoch, ticks(holdLimit), ticks(spec.grace), token, more, fresh ? "new" : "released"];
    return this.#answer("claim", words, signal, { envs: part(0) });
  }

  /** See to it that what nobody has claimed is never claimed. What was claimed stays as it is. */
  retire(signal: AbortSignal): Promise<GuardAnswer> {
    return this.#answer("retire", [], signal);
  }

  fence(epoch: bigint, signal: AbortSignal): Promise<GuardAnswer> {
    return this.#answer("fence", [epoch], signal);
  }

  release(epoch: bigint, limit: Microseconds, signal: AbortSignal): Promise<GuardAnswer> {
    return this.#answer("release", [epoch, ticks(limit)], signal);
  }

  stop(epoch: bigint, signal: AbortSignal): Promise<GuardAnswer> {
    return this.#answer("stop", [epoch], signal);
  }

  look(signal: AbortSignal): Promise<GuardAnswer> {
    return this.#answer("look", [], signal);
  }

  /** Answers when it has moved on from this state, or after `ms`. */
  wait(after: number, ms: number, signal: AbortSignal): Promise<GuardAnswer> {
    return this.#answer("wait", [after, Math.ceil(ms / 10)], signal, { extraMs: ms });
  }

  /** Start what was released, detached. However often: one of them runs it. */
  async run(outputBytesMax: number, signal: AbortSignal): Promise<void> {
    await this.#ask("run", [outputBytesMax], signal, { background: true });
  }

  /** Output from these places on, at most `bytesMax` of each stream. Waits up to `ms` for some. */
  async read(
    from: { readonly out: number; readonly err: number },
    bytesMax: number,
    ms: number,
    signal: AbortSignal,
  ): Promise<OutputReading> {
    const words = [from.out, from.err, bytesMax, Math.ceil(ms / 10)];
    const lines = await this.#ask("read", words, signal, { extraMs: ms });
    const texts = { out: "", err: "" };
    let into: "out" | "err" | null = null;
    let sizes: readonly bigint[] = [];
    for (const text of lines) {
      const line = readGuardLine(text);
      if (line.is === "data") {
        if (into !== null) texts[into] += line.text;
      } else if (line.word === "out" || line.word === "err") into = line.word;
      else if (line.word === "log") {
        if (!/^\d+( \d+){3}$/.test(line.rest)) throw malformed();
        sizes = line.rest.split(" ").map(BigInt);
      } else into = null;
    }
    const part = (at: number, text: string): OutputPart => ({
      size: Number(sizes[at] ?? 0n),
      changedAt: sizes[at + 1] ?? 0n,
      bytes: Buffer.from(text, "base64"),
    });
    return { answer: readAnswer(lines), out: part(0, texts.out), err: part(2, texts.err) };
  }

  async #answer(
    operation: string,
    words: readonly (string | number | bigint)[],
    signal: AbortSignal,
    how: { readonly extraMs?: number; readonly envs?: Readonly<Record<string, string>> } = {},
  ): Promise<GuardAnswer> {
    return readAnswer(await this.#ask(operation, words, signal, how));
  }

  #ask(
    operation: string,
    words: readonly (string | number | bigint)[],
    signal: AbortSignal,
    how: {
      readonly background?: boolean;
      readonly envs?: Readonly<Record<string, string>>;
      readonly extraMs?: number;
    } = {},
  ): Promise<readonly string[]> {
    const { background = false, envs, extraMs = 0 } = how;
    const command = {
      command: guardCommand(operation, this.#uid, words),
      background,
      ...(envs === undefined ? {} : { envs }),
      timeoutMs: this.#limits.requestMs + extraMs,
      silenceMs: this.#limits.silenceMs,
    };
    return retrying(this.#limits, signal, async () => {
      const lines: string[] = [];
      for await (const line of runCommand(this.#endpoint, command, signal)) lines.push(line);
      // Output that stops short of its last word is no answer, whatever the daemon says of the command.
      if (!background && lines.at(-1) !== "holdfast end") throw malformed();
      return lines;
    });
  }
}

function readAnswer(lines: readonly string[]): GuardAnswer {
  let refusal: GuardAnswer["refusal"] = null;
  for (const text of lines) {
    const line = readGuardLine(text);
    if (line.is !== "word") continue;
    if (line.word === "refused") refusal = readRefusal(line.rest);
    if (line.word === "state") return { state: readState(line.rest), refusal };
  }
  throw malformed();
}

/** The guard's unit: hundredths of a second, rounded up, so that only nothing is nothing. */
const ticks = (time: Microseconds): number => Math.max(0, Math.ceil(toMilliseconds(time) / 10));

const malformed = (): ServiceError => new ServiceError(502, "", "the guard's answer is not whole");
