import { setTimeout as delay } from "node:timers/promises";
import { HoldfastError } from "../../core/errors.ts";
import { assertOutsideTransition } from "../../core/outside.ts";
import {
  type ExternalObject,
  type LogRecord,
  type Observation,
  type PrepareRequest,
  type Runtime,
  RuntimeRefusal,
  type SandboxRef,
  type SandboxSpec,
} from "../../core/runtime.port.ts";
import { type Microseconds, microseconds } from "../../core/time.ts";
import { checkRequest } from "../../sandboxes/check-request.ts";
import { checkName } from "../../sandboxes/object-name.ts";
import { readableSecretValues, readSecrets } from "../../sandboxes/secret-files.ts";
import { checkLabels, createBody, defaultSettings, lifeMs, type SandboxSettings } from "./create-body.ts";
import type { Guard, GuardLimits } from "./guard.ts";
import { type GuardAnswer, observationOf, refusalOf } from "./guard-state.ts";
import { LifecycleApi, type ServiceConnection, type ServiceLimits } from "./lifecycle.ts";
import { epochOf, marks } from "./marks.ts";
import { type Found, Objects } from "./objects.ts";
import { readCursor, readOutput } from "./output.ts";
import { prepareSandbox } from "./prepare.ts";
import { isServiceError } from "./service-error.ts";

export interface OpenSandboxLimits extends ServiceLimits, GuardLimits {
  /** How long a create of unknown outcome is looked for before it is tried again. */
  readonly lateMs: number;
  readonly pendingMs: number;
  /** How long a removal is watched until the service has forgotten the sandbox. */
  readonly removeMs: number;
  /** How long one wait for a change takes at most. */
  readonly waitMs: number;
}

export interface OpenSandboxRuntimeOptions {
  readonly connection: ServiceConnection;
  /** A label's value. */
  readonly installation: string;
  /** A secret is the file `<secretsDirectory>/<name>/<key>`, where this process runs. Null: there are none. */
  readonly secretsDirectory: string | null;
  readonly sandboxes?: Partial<SandboxSettings>;
  /** Output kept of each sandbox, both streams together. */
  readonly logBytesMax?: number;
  readonly limits?: Partial<OpenSandboxLimits>;
}

export const defaultLimits: OpenSandboxLimits = {
  requestMs: 15_000,
  createMs: 75_000,
  silenceMs: 12_000,
  attemptsMax: 4,
  firstDelayMs: 200,
  delayMsMax: 5_000,
  pageItemsMax: 200,
  lateMs: 70_000,
  pendingMs: 75_000,
  removeMs: 20_000,
  waitMs: 10_000,
};

const defaultLogBytesMax = 64 * 1024 * 1024;
const pauseMs = 500;

/**
 * Sandboxes of an OpenSandbox service. One is an idle sandbox with a guard in it, which decides on the sandbox's own
 * disk, one step at a time: held, released under a check of the epoch, run once, stopped, with the record of its end
 * and its output beside it. The service is asked for what it knows, which is where sandboxes are; nothing that it
 * says of them is a proof.
 */
export function openSandboxRuntime(options: OpenSandboxRuntimeOptions): Runtime {
  return new OpenSandboxRuntime(options);
}

class OpenSandboxRuntime implements Runtime {
  readonly kind = "opensandbox";
  readonly #api: LifecycleApi;
  readonly #objects: Objects;
  readonly #options: OpenSandboxRuntimeOptions;
  readonly #limits: OpenSandboxLimits;
  readonly #settings: SandboxSettings;
  readonly #logBytesMax: number;
  /** The number of the state that was last seen of each: only a higher one is a change. */
  readonly #seen = new Map<string, number>();

  constructor(options: OpenSandboxRuntimeOptions) {
    if (!/^[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$/.test(options.installation)) {
      throw new HoldfastError("invalid_configuration", "the installation id is not a value of a label");
    }
    this.#options = options;
    this.#limits = { ...defaultLimits, ...options.limits };
    this.#settings = { ...defaultSettings, ...options.sandboxes };
    this.#logBytesMax = options.logBytesMax ?? defaultLogBytesMax;
    this.#api = new LifecycleApi(options.connection, this.#limits);
    this.#objects = new Objects(this.#api, this.#limits, options.installation);
  }

  async prepare(request: PrepareRequest, signal: AbortSignal): Promise<{ readonly uid: string }> {
    assertOutsideTransition("opensandbox.prepare");
    checkRequest(request, this.#options.installation);
    checkLabels(request);
    const context = {
      api: this.#api,
      objects: this.#objects,
      body: createBody(request, this.#settings),
      secrets: this.#secrets(request.spec),
      lateMs: this.#limits.lateMs,
      pendingMs: this.#limits.pendingMs,
    };
    return { uid: await prepareSandbox(context, request, signal) };
  }

  async fence(ref: SandboxRef, epoch: bigint, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("opensandbox.fence");
    const { sandbox } = await this.#need(ref, signal);
    const answer = await this.#ask(ref, signal, (guard) => guard.fence(epoch, signal));
    this.#accept(ref, epoch, answer);
    if (epochOf(sandbox.metadata) < epoch) {
      await this.#api.patchMetadata(ref.uid, { [marks.epoch]: String(epoch) }, signal);
    }
  }

  async release(ref: SandboxRef, epoch: bigint, limit: Microseconds, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("opensandbox.release");
    const found = await this.#need(ref, signal);
    if (limit > 0n) await this.#prolong(found, limit, signal);
    const answer = await this.#ask(ref, signal, (guard) => guard.release(epoch, limit, signal));
    this.#accept(ref, epoch, answer);
    if (answer.state.phase === "released") await this.#start(ref, signal);
  }

  async stop(ref: SandboxRef, epoch: bigint, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("opensandbox.stop");
    await this.#need(ref, signal);
    const answer = await this.#ask(ref, signal, (guard) => guard.stop(epoch, signal));
    this.#accept(ref, epoch, answer);
  }

  /** Looks, and starts what was released and whose controller died before it started it. */
  async observe(ref: SandboxRef, signal: AbortSignal): Promise<Observation> {
    assertOutsideTransition("opensandbox.observe");
    checkName(ref.name, "the sandbox's name");
    let state = "";
    try {
      const found = await this.#objects.get(ref, signal);
      if (found === null) return { state: "absent" };
      state = `; the service calls it ${found.sandbox.state} ${found.sandbox.reason}`.trimEnd();
      return await this.#observe(ref, found, signal);
    } catch (error) {
      signal.throwIfAborted();
      if (isGone(error)) return { state: "absent" };
      const words = error instanceof Error ? error.message : String(error);
      return { state: "unproven", reason: `it can't be asked: ${words}${state}`.slice(0, 1_000) };
    }
  }

  async changed(ref: SandboxRef, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("opensandbox.changed");
    checkName(ref.name, "the sandbox's name");
    const after = this.#seen.get(ref.uid);
    // Never looked at: whoever looks now learns something.
    if (after === undefined || signal.aborted) return;
    try {
      await this.#ask(ref, signal, (guard) => guard.wait(after, this.#limits.waitMs, signal));
    } catch {
      // Whatever it was, a look will show it. Not at once again, though, when nobody answers.
      await delay(pauseMs, undefined, { signal }).catch(() => undefined);
    }
  }

  logs(
    ref: SandboxRef,
    options: { readonly cursor: string | null; readonly follow: boolean },
    signal: AbortSignal,
  ): AsyncIterable<LogRecord> {
    assertOutsideTransition("opensandbox.logs");
    return this.#logs(ref, options, signal);
  }

  async find(name: string, signal: AbortSignal): Promise<string | null> {
    assertOutsideTransition("opensandbox.find");
    const named = await this.#objects.named(checkName(name, "the sandbox's name"), signal);
    if (named.length <= 1) return named[0]?.id ?? null;
    for (const { id } of named) {
      const { state } = await this.#objects.ask(id, signal, (guard) => guard.look(signal));
      if (state.claimed) return id;
    }
    return named[0]?.id ?? null;
  }

  async secretValues(spec: Pick<SandboxSpec, "secrets">, signal: AbortSignal): Promise<readonly string[]> {
    assertOutsideTransition("opensandbox.secretValues");
    signal.throwIfAborted();
    const { secretsDirectory } = this.#options;
    return secretsDirectory === null ? [] : readableSecretValues(secretsDirectory, spec.secrets);
  }

  /** Only after the guard's proof, as a deletion proves nothing; done when the service has forgotten the sandbox. */
  async remove(ref: SandboxRef, signal: AbortSignal): Promise<void> {
    assertOutsideTransition("opensandbox.remove");
    checkName(ref.name, "the sandbox's name");
    const found = await this.#objects.get(ref, signal);
    if (found === null) return;
    const seen = await this.#observe(ref, found, signal).catch((error: unknown) => {
      if (isGone(error)) return null;
      throw error;
    });
    if (seen === null) return;
    if (seen.state !== "stopped") {
      throw new RuntimeRefusal("invalid", `${ref.name} is not known to have stopped: stop it first`);
    }
    await this.#api.remove(ref.uid, signal);
    this.#objects.forget(ref.uid);
    this.#seen.delete(ref.uid);
    const until = performance.now() + this.#limits.removeMs;
    for (
      let pause = 50;
      (await this.#api.get(ref.uid, signal)) !== null;
      pause = Math.min(pause * 2, 2_000)
    ) {
      if (performance.now() > until) {
        throw new HoldfastError("unavailable", `${ref.name} was deleted, and the service still shows it`);
      }
      await delay(pause, undefined, { signal });
    }
  }

  list(signal: AbortSignal): AsyncIterable<ExternalObject> {
    assertOutsideTransition("opensandbox.list");
    return this.#list(signal);
  }

  async *#list(signal: AbortSignal): AsyncGenerator<ExternalObject, void> {
    for (const { id, metadata, createdAt } of await this.#objects.all(signal)) {
      const name = metadata[marks.name];
      if (name === undefined) continue;
      const tenant = metadata[marks.tenant] ?? null;
      const sandbox = metadata[marks.sandbox] ?? null;
      yield { name, uid: id, tenant, sandbox, epoch: epochOf(metadata), createdAt };
    }
  }

  async *#logs(
    ref: SandboxRef,
    options: { readonly cursor: string | null; readonly follow: boolean },
    signal: AbortSignal,
  ): AsyncGenerator<LogRecord, void> {
    const from = readCursor(options.cursor, ref.uid);
    await this.#need(ref, signal);
    const guard = await this.#objects.guard(ref.uid, signal);
    yield* readOutput({ uid: ref.uid, guard, bytesMax: this.#logBytesMax }, from, options.follow, signal);
  }

  async #observe(ref: SandboxRef, { sandbox }: Found, signal: AbortSignal): Promise<Observation> {
    const { uid } = ref;
    let { state } = await this.#ask(ref, signal, (guard) => guard.look(signal));
    if (state.phase === "none" && sandbox.metadata[marks.released] === undefined) {
      // It was never released, so a lost record loses nothing: from now on nobody can release it.
      ({ state } = await this.#ask(ref, signal, (guard) => guard.retire(signal)));
    }
    if (state.phase === "released") {
      await this.#start(ref, signal);
      ({ state } = await this.#ask(ref, signal, (guard) => guard.look(signal)));
    }
    this.#note(uid, state.number);
    if (state.phase === "none") {
      return { state: "unproven", reason: "it was released, and its disk was lost since: it may have run" };
    }
    return observationOf(uid, state);
  }

  /** The mark first: should its disk be lost later, nobody takes it for one that never ran. */
  async #start(ref: SandboxRef, signal: AbortSignal): Promise<void> {
    await this.#api.patchMetadata(ref.uid, { [marks.released]: "true" }, signal);
    await this.#ask(ref, signal, (guard) => guard.run(this.#logBytesMax, signal));
  }

  /** Later only: an earlier end would be taken as well, and a slower controller must not shorten what another gave. */
  async #prolong({ sandbox, now }: Found, limit: Microseconds, signal: AbortSignal): Promise<void> {
    if (sandbox.expiresAt === null) return;
    const end = now + lifeMs(limit, microseconds(0n), this.#settings);
    if (end <= sandbox.expiresAt) return;
    try {
      await this.#api.renew(sandbox.id, end, signal);
    } catch (error) {
      // It has no end, or has just come to it: the look that follows tells.
      if (!isServiceError(error, 400, 404, 409)) throw error;
    }
  }

  #accept(ref: SandboxRef, epoch: bigint, answer: GuardAnswer): void {
    const refusal = refusalOf(ref.name, epoch, answer);
    if (refusal !== null) throw refusal;
  }

  #note(uid: string, number: number): void {
    this.#seen.delete(uid);
    this.#seen.set(uid, number);
    if (this.#seen.size > 10_000) this.#seen.delete([...this.#seen.keys()][0] ?? "");
  }

  /** A secret that can't be read fails the start and not the object, as everywhere. */
  #secrets(spec: SandboxSpec) {
    const { secretsDirectory } = this.#options;
    const names = Object.keys(spec.secrets);
    if (names.length === 0) return { values: {} };
    if (secretsDirectory === null) return { failure: `no secrets are kept here, so no ${names.join(", ")}` };
    try {
      return { values: readSecrets(secretsDirectory, spec.secrets) };
    } catch (error) {
      return { failure: error instanceof Error ? error.message : String(error) };
    }
  }

  /** When its daemon is said to be nowhere, it may have been removed meanwhile: then that is the answer. */
  async #ask<T>(ref: SandboxRef, signal: AbortSignal, question: (guard: Guard) => Promise<T>): Promise<T> {
    try {
      return await this.#objects.ask(ref.uid, signal, question);
    } catch (error) {
      if (isServiceError(error, 404)) await this.#objects.need(ref, signal);
      throw error;
    }
  }

  #need(ref: SandboxRef, signal: AbortSignal): Promise<Found> {
    checkName(ref.name, "the sandbox's name");
    return this.#objects.need(ref, signal);
  }
}

const isGone = (error: unknown): boolean =>
  error instanceof RuntimeRefusal && (error.reason === "gone" || error.reason === "wrong_uid");
