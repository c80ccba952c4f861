import { setTimeout as delay } from "node:timers/promises";
import { HoldfastError } from "../../core/errors.ts";
import { type PrepareRequest, RuntimeRefusal } from "../../core/runtime.port.ts";
import type { launchScript } from "./guard-command.ts";
import { refusalOf } from "./guard-state.ts";
import type { LifecycleApi, ServiceSandbox } from "./lifecycle.ts";
import { digestOf, epochOf, marks } from "./marks.ts";
import type { Objects } from "./objects.ts";
import { isServiceError } from "./service-error.ts";

export interface PrepareContext {
  readonly api: LifecycleApi;
  readonly objects: Objects;
  readonly secrets: Parameters<typeof launchScript>[2];
  readonly body: object;
  /** How long to look for what a create of unknown outcome may have made. The service's own limit is 60 s. */
  readonly lateMs: number;
  /** How long to wait for another's create that is under way. */
  readonly pendingMs: number;
}

const roundsMax = 20;
const firstPauseMs = 100;
const pauseMsMax = 2_000;
/** States from which no sandbox comes back to be claimed. */
const over = new Set(["Failed", "Terminated", "Stopping"]);
const usable = new Set(["Running", "Allocated"]);

/**
 * Create a sandbox or adopt the one that has this name. The service knows neither names nor idempotency keys, so
 * there may be several; what makes one of them ours is the claim in its guard, of which there is one a sandbox. Who
 * sees several first retires all but the oldest, and a retired one can't be claimed any more: so two who see
 * different sandboxes still come to the same one. A claimed one is never deleted here.
 */
export async function prepareSandbox(
  context: PrepareContext,
  request: PrepareRequest,
  signal: AbortSignal,
): Promise<string> {
  for (let round = 0, waited = 0; round < roundsMax; ) {
    const { candidates, pending } = await look(context, request, signal);
    const chosen = await choose(context, candidates, signal);
    if (chosen !== null) {
      const uid = await claim(context, chosen, request, signal);
      if (uid !== null) return uid;
      round += 1;
      continue;
    }
    if (pending && waited < context.pendingMs) {
      const pause = Math.min(firstPauseMs * 2 ** Math.floor(waited / pauseMsMax), pauseMsMax);
      waited += pause;
      await delay(pause, undefined, { signal });
      continue;
    }
    round += 1;
    await create(context, request, signal);
  }
  throw new HoldfastError("unavailable", `${request.name} could be neither created nor adopted`);
}

async function look({ objects }: PrepareContext, request: PrepareRequest, signal: AbortSignal) {
  const named = await objects.named(request.name, signal);
  const alive = named.filter(({ state }) => !over.has(state));
  // What the service calls unknown or paused may have been claimed: it is asked like one that runs.
  const candidates = alive.filter(({ state }) => usable.has(state) || state !== "Pending");
  return { candidates, pending: candidates.length < alive.length };
}

/** The oldest, unless another one was claimed before; the others are retired and deleted. */
async function choose(
  { api, objects }: PrepareContext,
  candidates: readonly ServiceSandbox[],
  signal: AbortSignal,
): Promise<ServiceSandbox | null> {
  let [chosen = null, ...others] = candidates;
  for (const other of others) {
    if (chosen !== null && (await isClaimed(objects, other, signal))) {
      if (await isClaimed(objects, chosen, signal)) continue;
      await api.remove(chosen.id, signal);
      chosen = other;
    } else await api.remove(other.id, signal);
  }
  return chosen;
}

/** Retires it unless somebody has claimed it. One that is gone isn't claimed by anybody. */
async function isClaimed(
  objects: Objects,
  { id, metadata }: ServiceSandbox,
  signal: AbortSignal,
): Promise<boolean> {
  if (metadata[marks.released] !== undefined) return true;
  try {
    const { state } = await objects.ask(id, signal, (guard) => guard.retire(signal));
    return state.claimed;
  } catch (error) {
    if (isServiceError(error, 404)) return false;
    throw error;
  }
}

/** Null when it can't be had: it was retired or has gone meanwhile. */
async function claim(
  { api, objects, secrets }: PrepareContext,
  chosen: ServiceSandbox,
  request: PrepareRequest,
  signal: AbortSignal,
): Promise<string | null> {
  const { id, metadata } = chosen;
  if (digestOf(metadata) !== request.specDigest) {
    throw new RuntimeRefusal("name_taken", `${request.name} belongs to an object of another spec`);
  }
  try {
    const fresh = metadata[marks.released] === undefined;
    const answer = await objects.ask(id, signal, (guard) => guard.claim(request, { secrets, fresh }, signal));
    if (answer.refusal?.reason === "lost") {
      throw new HoldfastError(
        "unavailable",
        `${request.name} was released, and its guard has lost its record`,
      );
    }
    if (answer.refusal?.reason === "retired") {
      await api.remove(id, signal);
      return null;
    }
    const refusal = refusalOf(request.name, request.epoch, answer);
    if (refusal?.reason === "invalid") await api.remove(id, signal);
    if (refusal !== null) throw refusal;
    if (epochOf(metadata) < request.epoch) {
      await api.patchMetadata(id, { [marks.epoch]: String(request.epoch) }, signal);
    }
    return id;
  } catch (error) {
    if (isServiceError(error, 404)) return null;
    throw error;
  }
}

/**
 * One create. When its outcome is unknown (no answer, or the service's own 504 after which it deletes as well as it
 * can), look until it would have shown; an empty list proves nothing before that, and little after it: what shows
 * later still is found as an orphan, and can't have been claimed.
 */
async function create(context: PrepareContext, request: PrepareRequest, signal: AbortSignal): Promise<void> {
  try {
    await context.api.create(context.body, signal);
  } catch (error) {
    if (!isServiceError(error)) throw error;
    if ([400, 409, 413, 422].includes(error.status)) {
      throw new RuntimeRefusal("invalid", `the service refuses this sandbox: ${error.message}`);
    }
    const unknown = error.status === 0 || error.status === 408 || error.status >= 500;
    if (!unknown) throw error;
    const until = performance.now() + context.lateMs;
    for (let pause = firstPauseMs; ; pause = Math.min(pause * 2, pauseMsMax)) {
      const { candidates, pending } = await look(context, request, signal);
      if (candidates.length > 0 || pending) return;
      if (performance.now() + pause > until) throw error;
      await delay(pause, undefined, { signal });
    }
  }
}
