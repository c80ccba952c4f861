import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { brandId, type SandboxId, type TenantId } from "../../../src/core/ids.ts";
import type { PrepareRequest, Runtime, SandboxRef } from "../../../src/core/runtime.port.ts";
import { seconds } from "../../../src/core/time.ts";
import {
  type OpenSandboxRuntimeOptions,
  openSandboxRuntime,
} from "../../../src/runtimes/opensandbox/opensandbox-runtime.ts";
import { bytesOf, digestOf, readLogs } from "../../conformance/runtime.ts";
import { until } from "../until.ts";
import { type Fault, OpenSandboxDouble } from "./service.ts";

export const never = new AbortController().signal;
export const minute = seconds(60);

/** A double, runtimes on it with short patience, and sandboxes in the states that tests begin with. */
export class OpenSandboxWorld {
  readonly service: OpenSandboxDouble;
  readonly runtime: Runtime;
  readonly installation = "facts";
  readonly #secrets = mkdtempSync(join(tmpdir(), "hf-secrets-"));
  #serial = 0;

  static async open(): Promise<OpenSandboxWorld> {
    return new OpenSandboxWorld(await OpenSandboxDouble.start());
  }

  private constructor(service: OpenSandboxDouble) {
    this.service = service;
    this.runtime = this.another();
  }

  another(more: Partial<OpenSandboxRuntimeOptions> = {}): Runtime {
    const { limits, connection, ...rest } = more;
    return openSandboxRuntime({
      installation: this.installation,
      secretsDirectory: this.#secrets,
      sandboxes: { image: "registry.test/shell:1" },
      ...rest,
      connection: connection ?? { url: this.service.url, apiKey: null, useServerProxy: true },
      limits: { firstDelayMs: 5, lateMs: 700, pendingMs: 1_000, waitMs: 2_000, ...limits },
    });
  }

  request(script: string, more: Partial<PrepareRequest> = {}): PrepareRequest {
    const spec = {
      command: ["/bin/sh", "-c", script],
      env: {},
      secrets: {},
      image: null,
      grace: seconds(1),
      limits: { cpuMillicores: 100, memoryBytes: 64 << 20, diskBytes: 64 << 20 },
    };
    return {
      name: `hf-fact-${(this.#serial += 1)}`,
      installation: this.installation,
      tenant: brandId<TenantId>("acme"),
      sandbox: brandId<SandboxId>(randomUUID()),
      spec,
      specDigest: digestOf(spec),
      epoch: 1n,
      privateEnv: {},
      holdLimit: minute,
      ...more,
    };
  }

  async prepare(request: PrepareRequest, by = this.runtime): Promise<SandboxRef> {
    return { name: request.name, uid: (await by.prepare(request, never)).uid };
  }

  held(script: string): Promise<SandboxRef> {
    return this.prepare(this.request(script));
  }

  async released(script: string): Promise<SandboxRef> {
    const ref = await this.held(script);
    await this.runtime.release(ref, 1n, minute, never);
    return ref;
  }

  /** Released, and its command has begun. */
  async running(script: string): Promise<SandboxRef> {
    const ref = await this.released(`echo ready; ${script}`);
    await until("it is ready", async () => (await this.output(ref)).includes("ready"));
    return ref;
  }

  async output(ref: SandboxRef): Promise<string> {
    return bytesOf(await readLogs(this.runtime, ref)).toString();
  }

  async state(ref: SandboxRef): Promise<string> {
    return (await this.runtime.observe(ref, never)).state;
  }

  fail(method: string, path: RegExp, does: Fault["does"], times = 1): void {
    this.service.fail({
      matches: (seen) => seen.method === method && path.test(seen.path),
      times,
      does,
    });
  }

  count(method: string, path: RegExp): number {
    return this.service.requests.filter((seen) => seen.method === method && path.test(seen.path)).length;
  }

  /** Ids of all sandboxes with this name that the service knows, shown or not. */
  named(name: string): readonly string[] {
    return [...this.service.boxes.values()]
      .filter((box) => box.known && box.metadata["holdfast.dev/name"] === name)
      .map((box) => box.id);
  }

  async close(): Promise<void> {
    await this.service.close();
    rmSync(this.#secrets, { recursive: true, force: true });
  }
}
