import { HoldfastError, isHoldfastError } from "../core/errors.ts";
import { type WorkContext, type WorkDefinition, WorkFailure } from "./define.ts";
import type { Outcome, Permitted } from "./turn.store.ts";

const resultLengthMax = 262_144;

/** Calls the code of one attempt. What it throws is its failure; it never rejects. */
export async function handle(
  work: WorkDefinition,
  item: Permitted,
  signals: readonly AbortSignal[],
  onError: (error: unknown) => void,
): Promise<Outcome> {
  let signal: AbortSignal | undefined;
  const context: WorkContext = {
    tenant: item.tenant,
    id: item.id,
    attempt: item.attempt,
    providerKey: item.providerKey,
    acceptedAt: item.acceptedAt,
    deadline: item.deadline,
    // Most handlers never ask for it.
    get signal() {
      signal ??= AbortSignal.any([...signals]);
      return signal;
    },
  };
  let result: unknown;
  try {
    result = await work.run(item.input, context);
  } catch (error) {
    return failure(error);
  }
  try {
    return { type: "succeeded", result: encoded(result) };
  } catch (error) {
    // The effect has happened: that its result can't be stored does not make it a failure.
    onError(error);
    return { type: "succeeded", result: "" };
  }
}

/** JSON, or nothing. */
function encoded(result: unknown): string {
  const text: string | undefined = result === undefined ? "" : JSON.stringify(result);
  if (text === undefined) return "";
  if (text.length > resultLengthMax)
    throw new HoldfastError("payload_too_large", "a result has at most 256 KiB");
  return text;
}

function failure(error: unknown): Outcome {
  const message = stored(said(error)).slice(0, 1_000);
  if (error instanceof WorkFailure) {
    return { type: "failed", code: named(error.code), message, final: !error.retry };
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
