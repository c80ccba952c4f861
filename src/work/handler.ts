import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import { parseInstant } from "../core/time.ts";
import { type WorkContext, type WorkDefinition, WorkFailure } from "./define.ts";
import { type EffectSafety, failsByThrowing } from "./safety.ts";
import type { Outcome, Permitted } from "./turn.store.ts";
import { kept, valueBytesMax } from "./value.ts";

const resultAt = ["result"] as const;

const leftUnknown = "is unknown, since only a WorkFailure says that nothing happened";

/** What is wrong with a result, for whoever runs the worker. */
export type OnFault = (error: unknown, what: "could not be stored" | typeof leftUnknown) => void;

/**
 * Calls the code of one attempt. What it throws is its failure, or leaves it unknown, as its safety has it: this never
 * throws, and its promise never rejects. Code that does not pause gives its outcome at once.
 */
export function handle(
  work: WorkDefinition,
  item: Permitted,
  signals: () => readonly AbortSignal[],
  onFault: OnFault,
): Outcome | Promise<Outcome> {
  let result: unknown;
  try {
    result = work.run(item.input, new Context(item, signals));
  } catch (error) {
    return failure(error, work.safety, onFault);
  }
  if (!isPromise(result)) return success(result, onFault);
  return Promise.resolve(result).then(
    (value) => success(value, onFault),
    (error: unknown) => failure(error, work.safety, onFault),
  );
}

/** What most code never asks for is made when it does. */
class Context implements WorkContext {
  readonly #item: Permitted;
  readonly #signals: () => readonly AbortSignal[];
  #signal: AbortSignal | undefined;

  constructor(item: Permitted, signals: () => readonly AbortSignal[]) {
    this.#item = item;
    this.#signals = signals;
  }
  get tenant() {
    return this.#item.tenant;
  }
  get id() {
    return this.#item.id;
  }
  get attempt() {
    return this.#item.attempt;
  }
  get providerKey() {
    return this.#item.providerKey;
  }
  get acceptedAt() {
    return parseInstant(this.#item.acceptedAt);
  }
  get deadline() {
    return this.#item.deadline === null ? null : parseInstant(this.#item.deadline);
  }
  get signal() {
    this.#signal ??= AbortSignal.any([...this.#signals()]);
    return this.#signal;
  }
}

const isPromise = (value: unknown): value is PromiseLike<unknown> =>
  typeof value === "object" && value !== null && "then" in value && typeof value.then === "function";

function success(result: unknown, onFault: OnFault): Outcome {
  try {
    return { type: "succeeded", result: encoded(result) };
  } catch (error) {
    // The effect has happened: that its result can't be stored does not make it a failure.
    onFault(error, "could not be stored");
    return { type: "succeeded", result: "" };
  }
}

/** JSON, or nothing. */
function encoded(result: unknown): string {
  if (result === undefined) return "";
  const text = JSON.stringify(kept(result, resultAt));
  if (text.length > valueBytesMax)
    throw new HoldfastError("payload_too_large", "a result has at most 256 KiB");
  return text;
}

function failure(error: unknown, safety: EffectSafety, onFault: OnFault): Outcome {
  const message = stored(said(error)).slice(0, 1_000);
  if (error instanceof WorkFailure) {
    return { type: "failed", code: named(error.code), message, final: !error.retry };
  }
  if (!failsByThrowing[safety]) {
    onFault(error, leftUnknown);
    return { type: "failed", code: "handler_failed", message, final: false, unknown: true };
  }
  // Input that does not fit its schema will not fit the next time either.
  const final = isHoldfastError(error, "invalid_request");
  return { type: "failed", code: isHoldfastError(error) ? error.code : "handler_failed", message, final };
}

/** Anything can be thrown, also what has no text. */
function said(error: unknown): string {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return "the handler threw something that has no text";
  }
}

/** The database takes no NUL: one in a message must not make a failure one that can't be stored. */
const stored = (text: string) => text.replaceAll("\0", "\uFFFD").toWellFormed();

const named = (code: string) => (code === "" ? "failed" : stored(code).slice(0, 63));
