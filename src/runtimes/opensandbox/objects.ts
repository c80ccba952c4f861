import { RuntimeRefusal, type SandboxRef } from "../../core/runtime.port.ts";
import { execPort } from "./exec-daemon.ts";
import { Guard, type GuardLimits } from "./guard.ts";
import type { Endpoint, LifecycleApi, ServiceSandbox } from "./lifecycle.ts";
import { marks } from "./marks.ts";

const endpointsMax = 10_000;
const idPattern = /^[A-Za-z0-9-]{1,64}$/;

/** A sandbox that is there, as the service shows it now, and its guard. */
export interface Found {
  readonly sandbox: ServiceSandbox;
  /** The service's clock, milliseconds. */
  readonly now: number;
}

/** Sandboxes of one installation, by name and by id. A name is a mark in the metadata, which nothing keeps unique. */
export class Objects {
  readonly #api: LifecycleApi;
  readonly #limits: GuardLimits;
  readonly #installation: string;
  /** Where the daemons of sandboxes are, least lately used first. A sandbox that was moved is asked for again. */
  readonly #endpoints = new Map<string, Endpoint>();

  constructor(api: LifecycleApi, limits: GuardLimits, installation: string) {
    this.#api = api;
    this.#limits = limits;
    this.#installation = installation;
  }

  /** The sandbox with this id, when it has this name too. */
  async get({ name, uid }: SandboxRef, signal: AbortSignal): Promise<Found | null> {
    signal.throwIfAborted();
    if (!idPattern.test(uid)) return null;
    const seen = await this.#api.get(uid, signal);
    if (seen === null) return null;
    const { metadata } = seen.sandbox;
    const ours = metadata[marks.name] === name && metadata[marks.installation] === this.#installation;
    return ours ? { sandbox: seen.sandbox, now: seen.serverTime } : null;
  }

  /** Refuses with `gone` or `wrong_uid`. */
  async need(ref: SandboxRef, signal: AbortSignal): Promise<Found> {
    const found = await this.get(ref, signal);
    if (found !== null) return found;
    const others = await this.named(ref.name, signal);
    if (others.length > 0) throw new RuntimeRefusal("wrong_uid", `${ref.name} has another UID`);
    throw new RuntimeRefusal("gone", `${ref.name} was removed`);
  }

  /** All that have this name, the oldest first. Several: creates of which nobody knew that they had happened. */
  async named(name: string, signal: AbortSignal): Promise<readonly ServiceSandbox[]> {
    signal.throwIfAborted();
    const found = await this.#api.list(marks.name, name, signal);
    return found.filter(({ metadata }) => metadata[marks.installation] === this.#installation).sort(byAge);
  }

  async all(signal: AbortSignal): Promise<readonly ServiceSandbox[]> {
    return this.#api.list(marks.installation, this.#installation, signal);
  }

  async guard(uid: string, signal: AbortSignal): Promise<Guard> {
    const known = this.#endpoints.get(uid);
    const endpoint = known ?? (await this.#api.endpoint(uid, execPort, signal));
    this.#endpoints.delete(uid);
    this.#endpoints.set(uid, endpoint);
    if (this.#endpoints.size > endpointsMax) this.forget([...this.#endpoints.keys()][0] ?? "");
    return new Guard(uid, endpoint, this.#limits);
  }

  /** Ask its guard; when nobody answers, ask next time where it is. */
  async ask<T>(uid: string, signal: AbortSignal, question: (guard: Guard) => Promise<T>): Promise<T> {
    try {
      return await question(await this.guard(uid, signal));
    } catch (error) {
      this.forget(uid);
      throw error;
    }
  }

  forget(uid: string): void {
    this.#endpoints.delete(uid);
  }
}

/** The same order for everybody, so that all who see the same sandboxes choose the same one. */
function byAge(left: ServiceSandbox, right: ServiceSandbox): number {
  if (left.createdAt !== right.createdAt) return left.createdAt < right.createdAt ? -1 : 1;
  return left.id < right.id ? -1 : 1;
}
