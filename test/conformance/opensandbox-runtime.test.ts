import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openSandboxRuntime } from "../../src/runtimes/opensandbox/opensandbox-runtime.ts";
import { OpenSandboxDouble } from "../support/opensandbox/service.ts";
import { runtimeConformance } from "./runtime.ts";

const logBytesMax = 12_000_000;

runtimeConformance(
  "opensandbox, on a double of its service",
  async () => {
    const service = await OpenSandboxDouble.start();
    service.apiKey = "the-key";
    service.daemonToken = "the-token";
    const secretsDirectory = mkdtempSync(join(tmpdir(), "hf-secrets-"));
    const options = {
      connection: { url: service.url, apiKey: service.apiKey, useServerProxy: true },
      installation: "conformance",
      secretsDirectory,
      sandboxes: { image: "registry.test/shell:1" },
      logBytesMax,
    };
    return {
      runtime: openSandboxRuntime(options),
      other: openSandboxRuntime(options),
      installation: options.installation,
      async close() {
        await service.close();
        rmSync(secretsDirectory, { recursive: true, force: true });
      },
    };
  },
  { shell: (script) => ["/bin/sh", "-c", script], image: null, exactLogs: true, logBytesMax },
);
